"""Consumer groups (KIP-848): the coordinator assigns, members reconcile themselves with it by their heartbeats."""
