"""The exactly-once sink."""
