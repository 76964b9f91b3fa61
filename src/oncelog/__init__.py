"""oncelog: exactly-once messages for Python, over a log and a broker that speak Apache Kafka's protocol.

What is public is exported here and loaded on first use, so that `import oncelog` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.admin import Admin as Admin
    from oncelog.broker.process import Broker as Broker
    from oncelog.broker.process import BrokerFailed as BrokerFailed
    from oncelog.errors import KafkaError as KafkaError
    from oncelog.errors import OncelogError as OncelogError
    from oncelog.types import TopicPartition as TopicPartition

__version__ = "0.1.0"

_HOMES = {
    "Admin": "oncelog.admin",
    "Broker": "oncelog.broker.process",
    "BrokerFailed": "oncelog.broker.process",
    "KafkaError": "oncelog.errors",
    "OncelogError": "oncelog.errors",
    "TopicPartition": "oncelog.types",
}

__all__ = ["Admin", "Broker", "BrokerFailed", "KafkaError", "OncelogError", "TopicPartition", "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
