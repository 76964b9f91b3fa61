"""Two brokers of Apache Kafka, and partitions that go from one to the other, with all that is coordinated there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncelog.errors import NotCoordinator
from tests.support.kafka import KafkaBroker, SecondKafkaBroker
from tests.support.patience import eventually
from tests.support.raw import RawClient
from tests.support.transactions import describe_transactions

COORDINATION = "__transaction_state"
"""Who leads the only partition of this topic coordinates every transaction."""
TIMEOUT_MS = 30_000
FIRST, SECOND = 1, SecondKafkaBroker.NODE_ID


class KafkaPair:
    """The second joins when it is told to; what was made before is all on the first."""

    def __init__(self, directory: Path, config: dict[str, str]) -> None:
        self.first = KafkaBroker(directory / "first", config)
        self._second = SecondKafkaBroker(directory / "second", self.first)

    def __enter__(self) -> KafkaPair:
        self.first.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Killed: a broker that stops politely waits for its controller, and that one for its brokers."""
        for broker in (self._second, self.first):
            if broker.process is not None:
                broker.kill()

    def join(self) -> None:
        self._second.start()

    def move(self, topics: Sequence[str]) -> None:
        """Every partition of these topics to the other node than leads the first of them now; when this returns, it
        leads them all, and both know."""
        with RawClient(self.first.address) as first, RawClient(self._second.address) as second:
            (leader, *_) = _leaders(first, topics[0])
            node_id = FIRST if leader == SECOND else SECOND
            for topic in topics:
                _reassign(first, topic, node_id)

            def has_moved() -> bool:
                return all(
                    leader == node_id
                    for topic in topics
                    for node in (first, second)
                    for leader in _leaders(node, topic)
                )

            eventually(has_moved, f"node {node_id} leads {', '.join(topics)}")
            # A coordinator that has not heard yet of its end answers by what it knows, and that is fatal to a producer.
            old = second if node_id == FIRST else first
            eventually(
                lambda: COORDINATION not in topics or not _coordinates(old), f"node {leader} has heard of its end"
            )


def _reassign(client: RawClient, topic: str, node_id: int) -> None:
    partitions = tuple(
        {"partition_index": index, "replicas": (node_id,)} for index in range(len(_leaders(client, topic)))
    )
    body = {"timeout": TIMEOUT_MS, "topics": ({"name": topic, "partitions": partitions},)}
    answer = client.request("alter_partition_reassignments", 0, body)
    codes = [one["error_code"] for told in answer["responses"] for one in told["partitions"]]
    assert [answer["error_code"], *codes] == [0] * (1 + len(partitions)), answer


def _coordinates(client: RawClient) -> bool:
    (state,) = describe_transactions(client, "anyone")["transaction_states"]
    return bool(state["error_code"] != NotCoordinator.code)


def _leaders(client: RawClient, topic: str) -> list[int]:
    (found,) = client.request("metadata", 12, {"topics": ({"name": topic},)})["topics"]
    return [one["leader_id"] for one in sorted(found["partitions"], key=lambda one: one["partition_index"])]
