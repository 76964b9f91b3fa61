"""Whether partitions that a coordinator refused as unknown exist at all: a coordinator that lags behind learns of them,
one whose topic was deleted does not.

Asks the coordinator itself, with a Metadata request of its own that creates no topic. An answer counts once: for the
refusal that comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.network_events import Event, Lost
from oncelog.errors import NONE, UnknownTopicOrPartition
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey


class TopicDoubts:
    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link
        self._doubted: frozenset[str] = frozenset()
        """To be asked about."""
        self._found: dict[str, frozenset[int]] = {}
        """The partitions of each topic that was asked about since it was doubted."""
        self._is_asking = False

    def begin(self, topics: Iterable[str]) -> None:
        """These were refused just now; what was found before does not count any more, nor is it doubted."""
        self._doubted = frozenset(topics)
        self._found.clear()

    def is_gone(self, partition: TopicPartition) -> bool:
        """It was doubted, and does not exist."""
        found = self._found.get(partition.topic)
        return found is not None and partition.partition not in found

    def poll(self, now_ms: int) -> None:
        if not self._doubted or self._is_asking or not self._link.is_ready(now_ms):
            return
        topics, self._doubted = [{"name": name} for name in sorted(self._doubted)], frozenset()
        self._is_asking = True
        body = {"topics": topics, "allow_auto_topic_creation": False}
        self._link.send(ApiKey.METADATA, body, now_ms, self._answered)

    def _answered(self, event: Event, _: int) -> None:
        self._is_asking = False
        if isinstance(event, Lost):
            return  # the next refusal raises the doubt again
        for topic in event.body["topics"]:
            if topic["error_code"] in (NONE, UnknownTopicOrPartition.code):
                self._found[topic["name"]] = frozenset(one["partition_index"] for one in topic["partitions"])
