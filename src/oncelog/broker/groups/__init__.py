"""The runtime of the group coordinators: which partition of `__consumer_offsets` coordinates a group, how its records
get into the log and its answers out, and what wakes it. The rules of groups are in `oncelog.coordinator`.

Nothing here is imported before the first group needs it: most brokers live without groups for their first seconds.
"""
