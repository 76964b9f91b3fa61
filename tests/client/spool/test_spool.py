from __future__ import annotations

import errno

import pytest

from oncelog.client.spool.backlog import READ_AHEAD_BYTES
from oncelog.client.spool.errors import SpoolError, SpoolFull, SpoolReadFailed, SpoolWriteFailed
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.spool import Spool, SpoolConfig, SpooledRecord
from oncelog.types import TopicPartition
from tests.client.spool.driver import DIRECTORY, NOW_MS
from tests.support.faulty_storage import FaultyStorage

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
US = Identity(7, 0)
CONFIG = SpoolConfig(max_bytes=8_000)
DURABLE = SpoolConfig(max_bytes=8_000, is_durable=True)


def opened(storage: FaultyStorage, config: SpoolConfig = CONFIG) -> Spool:
    return Spool.open(storage, DIRECTORY, config)[0]


def fill(spool: Spool, *partitions: TopicPartition, size: int = 10) -> list[int]:
    return [spool.append(*partition, NOW_MS, b"key", b"." * size, [("name", b"1")]) for partition in partitions]


def load(spool: Spool) -> list[SpooledRecord]:
    records = []
    while (record := spool.peek()) is not None:
        records.append(record)
        spool.took(record.topic, record.partition)
    return records


def places(records: list[SpooledRecord]) -> list[tuple[TopicPartition, int]]:
    return [(record.topic_partition, record.entry) for record in records]


def numbered(spool: Spool, partition: TopicPartition, first: int, count: int, base: int) -> None:
    spool.numbered([Numbered(partition, first, count, US, base, NOW_MS)])


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_record_is_in_a_file_when_append_returns() -> None:
    storage = FaultyStorage()
    assert fill(opened(storage), A, A, B) == [0, 1, 0]
    spool = opened(storage.after_kill())
    assert load(spool) == [
        SpooledRecord(*partition, entry, NOW_MS, b"key", b"." * 10, (("name", b"1"),))
        for partition, entry in [(A, 0), (A, 1), (B, 0)]
    ]


def test_each_partition_counts_on_after_a_restart() -> None:
    storage = FaultyStorage()
    fill(opened(storage), A, A)
    assert fill(opened(storage), A, B) == [2, 0]


def test_a_producer_that_keeps_up_never_reads() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    for partition in (A, B, A):
        (entry,) = fill(spool, partition)
        assert spool.is_next(*partition, entry)
        spool.took(*partition)
    assert spool.waiting == 0
    assert spool.peek() is None
    assert not any(" read " in line for line in storage.log)


def test_records_behind_a_waiting_one_wait_too() -> None:
    spool = opened(FaultyStorage())
    fill(spool, A)  # memory is full, say
    (entry,) = fill(spool, A)
    assert not spool.is_next(*A, entry)
    (other,) = fill(spool, B)
    assert spool.is_next(*B, other)
    spool.took(*B)
    assert spool.waiting == 2
    assert places(load(spool)) == [(A, 0), (A, 1)]


def test_what_waits_is_read_back_in_order_and_in_bounds() -> None:
    spool = opened(FaultyStorage(), SpoolConfig(max_bytes=10 * READ_AHEAD_BYTES))
    partitions = [A, B, B] * 100
    fill(spool, *partitions, size=3000)
    fill(spool, A, size=2 * READ_AHEAD_BYTES)  # one record alone is more than is read ahead
    fill(spool, B)
    records = load(spool)
    assert [record.topic_partition for record in records] == [*partitions, A, B]
    assert [record.entry for record in records if record.topic_partition == B] == list(range(201))
    assert len(records[-2].value or b"") == 2 * READ_AHEAD_BYTES
    assert spool.peek() is None
    fill(spool, A)
    assert places(load(spool)) == [(A, 101)]


# --- bounds and failures ----------------------------------------------------------------------------------------------


def test_a_full_spool_refuses_and_takes_again_when_records_are_settled() -> None:
    spool = opened(FaultyStorage())
    with pytest.raises(SpoolFull, match=r"spool_max_bytes \(8000\)"):
        fill(spool, *[A] * 100, size=110)
    count = fill(spool, *[B], size=1)[0]  # a smaller one still fits
    size_bytes = spool.size_bytes
    assert size_bytes <= 8_000
    load(spool)
    numbered(spool, A, 0, 40, 0)
    spool.settled(*A, 0, 40)
    assert spool.size_bytes < size_bytes - 4_000
    fill(spool, A, B, size=100)
    assert count == 0


def test_a_record_larger_than_the_spool_is_refused() -> None:
    with pytest.raises(SpoolFull):
        fill(opened(FaultyStorage()), A, size=9_000)


@pytest.mark.parametrize("torn", [False, True])
def test_a_failed_write_accepts_nothing_and_harms_nothing(torn: bool) -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, A)
    storage.fail_at(storage.operations, errno.ENOSPC, torn=torn, sticky=True)
    with pytest.raises(SpoolWriteFailed, match="not accepted"):
        fill(spool, A, size=500)
    with pytest.raises(SpoolWriteFailed):
        fill(spool, A)
    storage.heal()
    assert fill(spool, A) == [1]
    again, recovery = Spool.open(storage.after_kill(), DIRECTORY, CONFIG)
    assert not recovery.damages
    assert places(load(again)) == [(A, 0), (A, 1)]


def test_what_cannot_be_opened_says_so() -> None:
    storage = FaultyStorage()
    storage.fail_at(0, errno.EACCES)
    with pytest.raises(SpoolError, match="data/spool cannot be opened"):
        opened(storage)


def test_a_record_that_rots_while_it_waits_is_noticed() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, A, A)
    storage.content(storage.paths(".records")[0])[30] ^= 1
    with pytest.raises(SpoolReadFailed, match=r"records is damaged at position 0"):
        spool.peek()


def test_numbers_that_cannot_be_written_down_are_refused() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, A)
    load(spool)
    storage.fail_at(storage.operations, torn=True)
    with pytest.raises(SpoolWriteFailed):
        numbered(spool, A, 0, 1, 0)
    recovery = Spool.open(storage.after_kill(), DIRECTORY, CONFIG)[1]
    assert not recovery.open_partitions
    assert not recovery.damages


@pytest.mark.parametrize("sticky", [False, True])
def test_a_torn_write_to_the_journal_leaves_nothing_behind(sticky: bool) -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, *[A] * 5)
    load(spool)
    numbered(spool, A, 0, 1, 0)
    storage.fail_at(storage.operations, torn=True, sticky=sticky)  # if sticky, it cannot be cut off at once
    with pytest.raises(SpoolWriteFailed):
        spool.numbered([Numbered(A, entry, 1, US, entry, NOW_MS) for entry in (1, 2, 3, 4)])
    storage.heal()
    spool.settled(*A, 0, 1)
    recovery = Spool.open(storage.after_kill(), DIRECTORY, CONFIG)[1]
    assert not recovery.damages
    assert not recovery.open_partitions


def test_what_is_settled_is_written_down_later_if_the_disk_fails_now() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, *[A] * 30, size=100)
    load(spool)
    numbered(spool, A, 0, 20, 0)
    storage.fail_at(storage.operations, sticky=True)
    spool.settled(*A, 0, 20)
    held = len(storage.paths(".records"))
    storage.heal()
    numbered(spool, A, 20, 5, 20)
    spool.settled(*A, 20, 5)
    assert len(storage.paths(".records")) < held
    recovery = Spool.open(storage.after_kill(), DIRECTORY, CONFIG)[1]
    assert not recovery.open_partitions
    assert not recovery.lost
    assert recovery.waiting == 5


def test_a_settled_spool_leaves_only_a_journal_behind() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, A, B)
    load(spool)
    spool.numbered([Numbered(A, 0, 1, US, 0, NOW_MS), Numbered(B, 0, 1, US, 0, NOW_MS)])
    spool.settled(*A, 0, 1)
    spool.settled(*B, 0, 1)
    spool.close()
    assert [path.rpartition(".")[2] for path in storage.paths("")] == ["journal"]
    assert fill(opened(storage), A) == [1], "numbers are not given twice"


def test_the_journal_stays_small() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    for entry in range(200):
        fill(spool, A)
        spool.took(*A)
        numbered(spool, A, entry, 1, entry)
        spool.settled(*A, entry, 1)
    (path,) = storage.paths(".journal")
    assert len(storage.content(path).rstrip(b"\0")) < 1000
    assert len(storage.paths(".records")) == 1


# --- durability -------------------------------------------------------------------------------------------------------


def test_an_interrupted_sync_is_done_again_as_a_whole() -> None:
    spool = opened(FaultyStorage(), DURABLE)
    fill(spool, A)
    interrupted = spool.sync_request()
    assert interrupted is not None
    assert interrupted.is_directory_changed
    assert spool.sync_request() == interrupted


def test_with_fsync_nothing_is_read_before_it_is_synced() -> None:
    spool = opened(FaultyStorage(), DURABLE)
    fill(spool, A)
    request = spool.sync_request()
    assert request is not None
    fill(spool, A)
    assert spool.peek() is None
    request.run()
    spool.synced(request)
    assert places(load(spool)) == [(A, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_a_power_failure(seed: int) -> None:
    storage = FaultyStorage()
    spool = opened(storage, DURABLE)
    for size in (10, 600, 1200):
        fill(spool, A, size=size)
        request = spool.sync_request()
        assert request is not None
        request.run()
        spool.synced(request)
    assert spool.sync_request() is None
    load(spool)
    numbered(spool, A, 0, 2, 0)
    spool, recovery = Spool.open(storage.after_power_loss(seed), DIRECTORY, DURABLE)
    assert [batch.numbers.count for batch in recovery.open_partitions[0].batches] == [2]
    assert recovery.open_partitions[0].batches[0].is_complete
    assert places(load(spool)) == [(A, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_files_go_only_after_it_is_durable_that_they_may(seed: int) -> None:
    storage = FaultyStorage()
    spool = opened(storage, DURABLE)
    fill(spool, *[A] * 12, size=400)
    request = spool.sync_request()
    assert request is not None
    request.run()
    spool.synced(request)
    load(spool)
    numbered(spool, A, 0, 12, 0)
    spool.settled(*A, 0, 12)
    assert len(storage.paths(".records")) == 1
    recovery = Spool.open(storage.after_power_loss(seed), DIRECTORY, DURABLE)[1]
    assert all(batch.is_complete for one in recovery.open_partitions for batch in one.batches)


def test_a_failed_sync_takes_back_what_was_not_promised() -> None:
    storage = FaultyStorage()
    spool = opened(storage, DURABLE)
    fill(spool, A)
    request = spool.sync_request()
    assert request is not None
    request.run()
    spool.synced(request)
    fill(spool, A)
    spool.sync_failed(OSError(errno.EIO, "the disk is gone"))
    with pytest.raises(SpoolWriteFailed, match="the disk is gone"):
        fill(spool, A)
    assert places(load(opened(storage.after_kill(), DURABLE))) == [(A, 0)]


def test_what_a_killed_process_left_in_the_page_cache_is_synced_before_it_is_sent() -> None:
    storage = FaultyStorage()
    fill(opened(storage, DURABLE), A)
    storage = storage.after_kill()
    spool = opened(storage, DURABLE)
    assert places(load(spool)) == [(A, 0)]
    numbered(spool, A, 0, 1, 0)
    for seed in range(10):
        (partition,) = Spool.open(storage.after_power_loss(seed), DIRECTORY, DURABLE)[1].open_partitions
        assert partition.batches[0].is_complete
