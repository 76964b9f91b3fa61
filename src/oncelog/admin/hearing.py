"""A controller answers before its brokers have heard: whoever asks next, wherever, should find what was changed.

Waits, and changes nothing. What was asked for is made by then, so no failure here is the caller's: a broker that cannot
be asked is not waited for, nor is any for long after HEARD_WITHIN_S, whether it has not heard or does not answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final

from oncelog.client.blocking import BlockingClient, BrokersUnreachable, ConnectionLost
from oncelog.client.metadata import NO_LEADER, ClusterMetadata, Node, TopicMetadata
from oncelog.errors import KafkaError, LeaderNotAvailable, UnknownTopicOrPartition
from oncelog.wire.api import ApiKey

HEARD_WITHIN_S: Final = 10.0
POLL_S: Final = 0.01
MAX_POLL_S: Final = 0.1
LAST_QUESTION_MS: Final = 1_000

Sight = Callable[[TopicMetadata | None], bool]
"""Whether what a broker says of a topic shows the change; None if it says that there is no such topic."""


def await_topic(client: BlockingClient, name: str, partitions: int) -> None:
    """Until every broker knows a leader for each of at least so many partitions."""

    def is_served(topic: TopicMetadata | None) -> bool:
        if topic is None or topic.error_code == LeaderNotAvailable.code:
            return False
        leaders = [one.leader for one in topic.partitions]
        return bool(topic.error_code) or (len(leaders) >= partitions and NO_LEADER not in leaders)

    _await_sight(client, name, is_served)


def await_name(client: BlockingClient, name: str) -> None:
    """Until every broker knows that there is such a topic."""
    _await_sight(client, name, lambda topic: topic is not None)


def await_end_of_topic(client: BlockingClient, name: str, topic_id: uuid.UUID) -> None:
    """Until no broker knows it any more. Another of its name may be there by then."""
    _await_sight(client, name, lambda topic: topic is None or topic.topic_id != topic_id)


def _await_sight(client: BlockingClient, name: str, shows: Sight) -> None:
    deadline = time.monotonic() + HEARD_WITHIN_S
    try:
        nodes = client.refresh_metadata([name], timeout_ms=_left_ms(deadline)).nodes.values()
    except (BrokersUnreachable, ConnectionLost, KafkaError):
        return
    for node in nodes:
        pause_s = POLL_S
        while not _is_seen_at(client, node, name, shows, _left_ms(deadline)) and time.monotonic() + pause_s < deadline:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_POLL_S)


def _is_seen_at(client: BlockingClient, node: Node, name: str, shows: Sight, timeout_ms: int) -> bool:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    try:
        answer = client.request(ApiKey.METADATA, asked, node=node, timeout_ms=timeout_ms)
    except ConnectionLost:
        return True  # it will have heard by the time it can be asked
    topic = ClusterMetadata.from_message(answer).topics.get(name)
    is_known = topic is not None and topic.error_code != UnknownTopicOrPartition.code
    return shows(topic if is_known else None)


def _left_ms(deadline: float) -> int:
    """At least so long that a broker which is well can answer: after the deadline every other one is asked once."""
    return max(LAST_QUESTION_MS, int(1000 * (deadline - time.monotonic())))
