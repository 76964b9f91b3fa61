"""When `oncelog produce` says that nothing is stored."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.cli.stall import REPEAT_S, STALL_S, StallWatch, why_topic_waits
from oncelog.client.blocking import BlockingClient
from oncelog.client.metadata import PartitionMetadata, TopicMetadata


def test_whoever_waits_is_told_after_a_while_again_and_at_the_end() -> None:
    watch = StallWatch()
    assert watch.look(100.0, 10, 10) is None
    assert watch.look(101.0, 20, 10) is None
    assert watch.look(99.9 + STALL_S, 20, 10) is None
    assert watch.look(100.0 + STALL_S, 20, 10) == "10 of 20 records are stored; nothing for 3 s"
    assert watch.is_stalled
    assert watch.look(101.0 + STALL_S, 20, 10) is None
    said = watch.look(100.0 + STALL_S + REPEAT_S, 5_000, 10)
    assert said == "10 of 5,000 records are stored; nothing for 13 s"
    assert watch.look(120.0, 5_000, 11) == "records are stored again: 11 of 5,000"
    assert not watch.is_stalled
    assert watch.look(121.0, 5_000, 12) is None


def test_nothing_is_said_while_there_is_nothing_to_store() -> None:
    watch = StallWatch()
    assert [watch.look(now, 10, 10) for now in range(0, 1_000, 10)] == [None] * 100


def test_slow_is_not_stuck() -> None:
    watch = StallWatch()
    assert [watch.look(now, 1_000, now) for now in range(100)] == [None] * 100


def topic_with(*leaders: int) -> TopicMetadata:
    partitions = [PartitionMetadata(index, leader, 0, (1,), (1,), (), 0) for index, leader in enumerate(leaders)]
    return TopicMetadata("orders", UUID(int=1), False, tuple(partitions), 0)


@pytest.mark.parametrize(
    ("leaders", "reason"),
    [
        ((1, -1, 1), "partition 1 of orders is offline (no leader; the broker's log says why); trying again"),
        ((-1, -1), "partitions 0, 1 of orders are offline (no leader; the broker's log says why); trying again"),
        ((-1,) * 9, "partitions 0, 1, 2, 3, 4 and 4 more of orders are offline"),
        ((1, 1), "every partition has a leader; waiting for answers"),
    ],
)
@pytest.mark.deterministic
def test_the_reason_names_what_is_offline(
    monkeypatch: pytest.MonkeyPatch, leaders: tuple[int, ...], reason: str
) -> None:
    monkeypatch.setattr(BlockingClient, "topic", lambda client, name: topic_with(*leaders))
    assert why_topic_waits({"bootstrap.servers": "127.0.0.1:1"}, "orders").startswith(reason)


@pytest.mark.real
def test_the_reason_names_who_cannot_be_reached() -> None:
    assert why_topic_waits({"bootstrap.servers": "127.0.0.1:1"}, "orders").startswith(
        "no broker answers (127.0.0.1:1: "
    )
