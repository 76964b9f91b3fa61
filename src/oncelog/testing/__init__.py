"""What `oncelog.pytest_plugin` hands to users' tests: names that nobody else uses, topics, audits.

It knows nothing of pytest. `names` and `wishes` are pure; `topics` and `audits` talk to a cluster, through `Admin` and
the reader of `oncelog audit`.
"""

from __future__ import annotations

from oncelog.testing.audits import AuditedTopic, Audits
from oncelog.testing.topics import Topics

__all__ = ["AuditedTopic", "Audits", "Topics"]
