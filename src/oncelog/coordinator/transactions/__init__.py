"""Transactions of producers: who may write under a transactional id, what belongs to a transaction, how it ends."""
