"""The topic of positions: it is created where it is missing, compacted, so that it outlives every outage.

One that exists with another cleanup policy is refused: it would forget positions, and with them what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.client.network import Network
from oncelog.client.network_events import Answered
from oncelog.client.spool.asking import ASK_AGAIN_MS, Asking
from oncelog.client.spool.errors import SpoolError
from oncelog.errors import NONE, TopicAlreadyExists, error_for_code
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

PARTITIONS: Final = 8
"""Each spool uses one; together they share the load of many spools."""
BROKERS_DEFAULT: Final = -1
CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Only segments that are not written to any more are compacted; small ones keep the log short."""
CREATE_TIMEOUT_MS: Final = 10_000
TOPIC_RESOURCE: Final = 2


class PositionTopic:
    def __init__(self, name: str, network: Network, on_lost: Callable[[], None]) -> None:
        self.is_ready = False
        self.failure: SpoolError | None = None
        self._name = name
        self._network = network
        self._asking = Asking(network, on_lost)
        self._why_not_created: str | None = None
        self._now_ms = 0

    def poll(self, now_ms: int) -> int:
        """Ask what is to be asked; when to look again."""
        self._now_ms = now_ms
        if self.is_ready or not self._asking.is_free(now_ms):
            return now_ms + ASK_AGAIN_MS
        node_id = self._network.least_loaded(now_ms)
        if node_id is not None and self._why_not_created is None:
            self._asking.ask(node_id, ApiKey.CREATE_TOPICS, self._creation(), now_ms, self._created, self._not_created)
        elif node_id is not None:
            question: Message = {
                "resources": [
                    {
                        "resource_type": TOPIC_RESOURCE,
                        "resource_name": self._name,
                        "configuration_keys": ["cleanup.policy"],
                    }
                ]
            }
            self._asking.ask(
                node_id, ApiKey.DESCRIBE_CONFIGS, question, now_ms, self._described, lambda _: self._trust()
            )
        return now_ms + ASK_AGAIN_MS

    def _creation(self) -> Message:
        topic = {
            "name": self._name,
            "num_partitions": PARTITIONS,
            "replication_factor": BROKERS_DEFAULT,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in CONFIGS.items()],
        }
        return {"topics": [topic], "timeout_ms": CREATE_TIMEOUT_MS, "validate_only": False}

    def _created(self, event: Answered) -> None:
        (topic,) = event.body["topics"]
        error = error_for_code(topic["error_code"], topic["error_message"])
        if topic["error_code"] == NONE:
            self.is_ready = True
        elif error.retriable:
            self._asking.again(self._now_ms)
        else:
            self._not_created("" if isinstance(error, TopicAlreadyExists) else str(error))

    def _not_created(self, why: str) -> None:
        self._why_not_created = why

    def _described(self, event: Answered) -> None:
        (topic,) = event.body["results"]
        error = error_for_code(topic["error_code"], topic["error_message"])
        if topic["error_code"] == NONE:
            policies = [one["value"] for one in topic["configs"] if one["name"] == "cleanup.policy"]
            if policies in ([], ["compact"]):
                self._trust()
            else:
                self.failure = SpoolError(
                    f"the topic {self._name!r} has cleanup.policy={policies[0]}, and would forget how far this spool"
                    " was committed: set it to compact, or name another topic as spool.positions.topic"
                )
        elif error.retriable and not self._why_not_created:
            self._asking.again(self._now_ms)
        elif self._why_not_created:
            self.failure = SpoolError(
                f"the topic {self._name!r}, which keeps how far this spool was committed, cannot be created"
                f" ({self._why_not_created}): create it with cleanup.policy=compact"
            )
        else:
            self._trust()

    def _trust(self) -> None:
        """It exists, and nobody may look at how it is configured: whoever made it knew."""
        self.is_ready = True
