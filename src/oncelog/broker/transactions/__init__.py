"""The runtime of the transaction coordinators: which partition of `__transaction_state` keeps a transactional id, how
its records get into the log and its answers out, how markers reach the partitions of a transaction, and what wakes it.
The rules of transactions are in `oncelog.coordinator.transactions`.

Nothing here is imported before the first transactional producer needs it.
"""
