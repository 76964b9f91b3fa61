"""Transactions of a producer, without I/O."""
