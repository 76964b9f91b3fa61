"""Groups that grow by many members at once: work in proportion to them, and nobody waits for its part in vain."""

from __future__ import annotations

from oncelog.coordinator.consumer.target import MAX_STANDING_MS, SIZE_PER_MS
from oncelog.coordinator.records import RecordType, decode_record
from tests.coordinator.consumer.support import Coordinator, FakeTopics, Kip848Client, settle

INTERVAL_MS = 5_000


def grown(size: int, partitions: int) -> tuple[Coordinator, list[Kip848Client]]:
    """They join one after the other, at the same time."""
    coordinator = Coordinator(FakeTopics(orders=partitions))
    clients = [Kip848Client(coordinator, f"m{number:05}") for number in range(size)]
    for client in clients:
        assert client.beat()["error_code"] == 0
    return coordinator, clients


def targets(coordinator: Coordinator) -> int:
    """How many target assignments were computed."""
    records = [decode_record(key, value) for key, value in coordinator.log]
    kinds = [record.type for record in records if record is not None]
    return kinds.count(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)


def written_bytes(coordinator: Coordinator) -> int:
    return sum(len(key) + len(value or b"") for key, value in coordinator.log)


def test_a_small_group_gets_a_target_with_every_member() -> None:
    coordinator, clients = grown(20, 100)
    assert targets(coordinator) == 20
    assert all(client.epoch == number for number, client in enumerate(clients, 2))


def test_members_of_a_large_group_that_join_together_share_a_target() -> None:
    coordinator, clients = grown(300, 300)
    assert targets(coordinator) == 1
    answer = clients[-1].beat()
    assert answer["heartbeat_interval_ms"] == (300 + 300) // SIZE_PER_MS
    coordinator.pass_time(answer["heartbeat_interval_ms"])
    settle(*clients)
    assert targets(coordinator) == 2
    assert all(len(client.owned) == 1 for client in clients)
    assert clients[0].beat()["heartbeat_interval_ms"] == INTERVAL_MS


def test_what_a_join_writes_does_not_grow_with_the_group() -> None:
    small, _ = grown(300, 300)
    large, _ = grown(1_200, 1_200)
    # The first one is given every partition that there is; from then on each writes the same.
    assert written_bytes(large) <= 4 * written_bytes(small)
    assert targets(large) == targets(small) == 1


def test_range_rewrites_everybody_once_for_all_who_joined() -> None:
    coordinator = Coordinator(FakeTopics(orders=300))
    clients = [Kip848Client(coordinator, f"m{number:05}", assignor="range") for number in range(300)]
    for client in clients:
        client.beat()
    coordinator.pass_time(MAX_STANDING_MS)
    before = len(coordinator.log)
    clients[0].beat()
    assert targets(coordinator) == 2
    assert len(coordinator.log) - before <= len(clients) + 2


def test_who_joins_a_large_group_alone_gets_its_part_at_once() -> None:
    coordinator, clients = grown(300, 600)
    coordinator.pass_time(MAX_STANDING_MS)
    settle(*clients)
    coordinator.pass_time(MAX_STANDING_MS)
    late = Kip848Client(coordinator, "zz")
    assert late.beat()["heartbeat_interval_ms"] == INTERVAL_MS
    assert late.epoch == coordinator.group().group_epoch == coordinator.group().assignment_epoch


def test_a_member_that_waits_for_a_target_gives_up_what_it_reads_no_more() -> None:
    coordinator, clients = grown(300, 600)
    coordinator.pass_time(MAX_STANDING_MS)
    settle(*clients)
    first, second = clients[:2]
    coordinator.pass_time(MAX_STANDING_MS)
    late = Kip848Client(coordinator, "zz")
    late.beat()  # brings a target that stands for a while
    first.topics = []
    answer = first.beat(subscribed_topic_names=[])
    assert answer["assignment"] == {"topic_partitions": []}
    assert first.owned == set()
    coordinator.pass_time(MAX_STANDING_MS)
    settle(*clients, late)
    assert len(second.owned) >= 2


def test_a_target_of_a_clock_that_was_ahead_does_not_stand() -> None:
    """The clock of the broker that computed it, before a restart."""
    coordinator, _ = grown(300, 300)
    coordinator.now_ms -= 10 * MAX_STANDING_MS
    coordinator.load()
    Kip848Client(coordinator, "zz").beat()
    assert targets(coordinator) == 2


def test_the_time_of_the_target_survives_a_restart() -> None:
    coordinator, _ = grown(300, 300)
    coordinator.load()
    Kip848Client(coordinator, "zz").beat()
    assert targets(coordinator) == 1
