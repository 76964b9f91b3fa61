"""The audit of topics too large for one process, as a Spark job. It finds what `oncelog.audit.account` finds.

`ids`, `judging` and `between` say in Spark's own expressions what the audit says in Python; no record passes through
Python on its way from the source to the counts. What comes back to the driver is bounded by the number of partitions.
"""

from oncelog.spark.audit.job import audit_topic, audit_topics

__all__ = ["audit_topic", "audit_topics"]
