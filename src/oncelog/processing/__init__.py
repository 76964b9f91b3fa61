"""Consume, transform, produce as one call: `oncelog.process` and `oncelog.process_async`."""
