"""Group members of kafka-python that are certain to get their partitions."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer  # type: ignore[import-untyped]

from tests.support.patience import eventually


def group_member(servers: str, topic: str, group: str, **settings: Any) -> KafkaConsumer:
    """A member that knows its topic before it joins.

    One that joins earlier and leads assigns nobody anything, and joins again as soon as the metadata is there. If a
    `poll` times out in the middle of that (kafka-python 3.0.12), nobody waits for its end any more: the member thinks
    that it is in the group, but takes no partitions and sends no heartbeats.
    """
    member = KafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=300,
        **settings,
    )  # fmt: skip
    eventually(lambda: bool(member.partitions_for_topic(topic)), "kafka-python knows the topic")
    return member
