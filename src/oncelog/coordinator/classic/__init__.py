"""Groups of the classic protocol: members join a round, one of them assigns, all learn their part by syncing."""
