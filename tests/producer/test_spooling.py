"""A producer with a spool on a real broker: outages, full memory, a full spool, and what an earlier process left."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin import Admin
from oncelog.client.leaders import LATEST_OFFSET
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.spool.errors import SpoolError, SpoolFateUnknown, SpoolFull, SpoolInUse, SpoolWriteFailed
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.fate import REMEMBERED_MS
from oncelog.client.spool.feeding import WaitingFuture
from oncelog.client.spool.spool import Spool, SpoolConfig, read_discarded
from oncelog.log.storage import FileStorage
from oncelog.producer import spooling
from oncelog.producer.producer import Producer
from oncelog.producer.spooling import GroupCommit
from oncelog.types import TopicPartition
from tests.support import parts
from tests.support.broker import OncelogBroker
from tests.support.confluent import create_topic, read
from tests.support.kafka import KafkaBroker
from tests.support.process import BrokerProcess
from tests.support.sizes import only_at_full_size

WAIT_S = 60
NEVER_SEEN = 987_654
"""A producer id that no broker gave out."""


@pytest.fixture
def spool_dir(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


@pytest.fixture(params=["oncelog_broker", pytest.param("kafka_broker", marks=pytest.mark.kafka)])
def each_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """What is said of these holds on both kinds of broker, always."""
    running: BrokerProcess = request.getfixturevalue(request.param)
    return running


@pytest.fixture(scope="module")
def mortal_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogBroker]:
    """A broker to kill; whoever does starts it again."""
    broker = OncelogBroker(tmp_path_factory.mktemp("mortal"))
    with broker:
        yield broker


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """Everything in the topic's one partition, which must be `count` records."""
    place = TopicPartition(topic, 0)
    with Admin(broker.bootstrap) as admin:
        assert admin.list_offsets({place: LATEST_OFFSET})[place].offset == count
    return [message.value() or b"" for message in read(broker, topic, count)] if count else []


def files(spool_dir: str, suffix: str) -> list[str]:
    return sorted(name for name in os.listdir(spool_dir) if name.endswith(suffix))


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def leave_behind(
    spool_dir: str,
    topic: str,
    *,
    settled: int = 0,
    opened: int = 5,
    batch_size: int = 100,
    waiting: int = 3,
    base_sequence: int = 0,
    age_ms: int = 0,
) -> None:
    """The spool of a process that was killed: some records acknowledged, some in flight, some never sent."""
    spool, _ = Spool.open(FileStorage(), spool_dir, SpoolConfig(1 << 20))
    for value in numbers(0, settled + opened + waiting):
        spool.append(topic, 0, int(time.time() * 1000), b"key", value)
        spool.took(topic, 0)
    if settled:
        spool.settled(topic, 0, 0, settled)
    numbered_ms = int(time.time() * 1000) - age_ms
    place, identity = TopicPartition(topic, 0), Identity(NEVER_SEEN, 0)
    for first in range(0, opened, batch_size):
        count = min(batch_size, opened - first)
        spool.numbered([Numbered(place, settled + first, count, identity, base_sequence + first, numbered_ms)])
    # Not closed: it was killed.


# --- the ordinary life ------------------------------------------------------------------------------------------------


def test_records_go_through_the_spool(each_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str) -> None:
    topic = new_topic()
    create_topic(each_broker, topic)
    told: list[int | None] = []
    with Producer(each_broker.bootstrap, spool_dir=spool_dir) as producer:
        futures = [
            producer.send(topic, value, on_delivery=lambda metadata, error: told.append(metadata and metadata.offset))
            for value in numbers(0, 500)
        ]
        assert futures[-1].result(WAIT_S).offset == 499
        assert producer.metrics()["spool-bytes"] > 0
    assert told == list(range(500))
    assert values(each_broker, topic, 500) == numbers(0, 500)
    assert files(spool_dir, "s") == []


def test_a_second_producer_on_the_same_folder_is_refused(oncelog_broker: BrokerProcess, spool_dir: str) -> None:
    first = Producer(oncelog_broker.bootstrap, spool_dir=spool_dir)
    with pytest.raises(SpoolInUse, match=f"process {os.getpid()}"):
        Producer(oncelog_broker.bootstrap, spool_dir=spool_dir)
    os.unlink(os.path.join(spool_dir, ".lock"))
    with pytest.raises(SpoolInUse):
        Producer(oncelog_broker.bootstrap, spool_dir=spool_dir)
    first.close()
    Producer(oncelog_broker.bootstrap, spool_dir=spool_dir).close()


def test_a_forked_child_leaves_the_spool_alone(oncelog_broker: BrokerProcess, spool_dir: str) -> None:
    with Producer(oncelog_broker.bootstrap, spool_dir=spool_dir) as producer:
        pid = os.fork()
        if not pid:
            try:
                producer.send("any", b"x")
            except ProducerClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        with pytest.raises(SpoolInUse):
            Producer(oncelog_broker.bootstrap, spool_dir=spool_dir)


def test_with_a_full_memory_records_wait_on_disk(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    told: list[int | None] = []
    with Producer(
        oncelog_broker.bootstrap, spool_dir=spool_dir, buffer_memory=8_000, batch_size=2_000, linger_ms=20
    ) as producer:
        futures = [
            producer.send(topic, value, on_delivery=lambda metadata, error: told.append(metadata and metadata.offset))
            for value in numbers(0, 3_000)
        ]
        assert any(isinstance(future, WaitingFuture) for future in futures), "memory was full"
        assert [future.result(WAIT_S).offset for future in futures] == list(range(3_000))
        assert all(future.done() for future in futures)
    assert told == list(range(3_000))
    assert values(oncelog_broker, topic, 3_000) == numbers(0, 3_000)


def test_with_fsync_many_threads_send(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    with Producer(oncelog_broker.bootstrap, spool_dir=spool_dir, spool_flush="fsync") as producer:

        def send(thread: int) -> None:
            for number in range(50):
                producer.send(topic, b"%d/%d" % (thread, number))

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        producer.flush(WAIT_S)
    stored = [value.split(b"/") for value in values(oncelog_broker, topic, 400)]
    for thread in range(8):
        assert [int(number) for name, number in stored if int(name) == thread] == list(range(50))


def test_batches_too_large_for_the_topic_are_split_and_settled(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic, configs={"max.message.bytes": "500"})
    with Producer(oncelog_broker.bootstrap, spool_dir=spool_dir, linger_ms=50) as producer:
        futures = [producer.send(topic, value) for value in numbers(0, 300)]
        too_large = producer.send(topic, b"." * 600)
        after = producer.send(topic, b"after")
        assert [future.result(WAIT_S).offset for future in futures] == list(range(300))
        assert too_large.exception(WAIT_S) is not None
        assert after.result(WAIT_S).offset == 300
    assert files(spool_dir, ".records") == [], "what failed was reported, and is not kept"


def test_a_table_does_not_go_through_the_spool(oncelog_broker: BrokerProcess, spool_dir: str) -> None:
    producer = Producer(oncelog_broker.bootstrap, spool_dir=spool_dir)
    with pytest.raises(SpoolError, match="use send"):
        producer.send_table("any", None)
    producer.close()


# --- when things go wrong ---------------------------------------------------------------------------------------------


def test_records_are_accepted_while_the_broker_is_away(
    mortal_broker: OncelogBroker, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(mortal_broker, topic)
    with Producer(mortal_broker.bootstrap, spool_dir=spool_dir, buffer_memory=10_000, batch_size=2_000) as producer:
        producer.send(topic, b"0").result(WAIT_S)
        mortal_broker.kill()
        futures = [producer.send(topic, value) for value in numbers(1, 2_000)]
        assert producer.flush(0.05) > 0
        mortal_broker.start()
        assert futures[-1].result(WAIT_S).offset == 1_999
    assert values(mortal_broker, topic, 2_000) == numbers(0, 2_000)


def test_what_is_not_sent_when_the_producer_closes_is_sent_by_the_next(
    mortal_broker: OncelogBroker, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(mortal_broker, topic)
    told: list[Any] = []
    producer = Producer(mortal_broker.bootstrap, spool_dir=spool_dir, buffer_memory=10_000, batch_size=2_000)
    producer.send(topic, b"0").result(WAIT_S)
    mortal_broker.kill()
    futures = [
        producer.send(topic, value, on_delivery=lambda metadata, error: told.append(error))
        for value in numbers(1, 1_000)
    ]
    producer.close(0.1)
    producer._sender.thread.join(WAIT_S)
    assert all(isinstance(future.exception(0), ProducerClosed | Exception) for future in futures)
    assert len(told) == 999
    assert None not in told
    with pytest.raises(ProducerClosed):
        producer.send(topic, b"late")
    mortal_broker.start()
    with Producer(mortal_broker.bootstrap, spool_dir=spool_dir) as following:
        following.send(topic, b"1000").result(WAIT_S)
    assert values(mortal_broker, topic, 1_001) == numbers(0, 1_001)


def test_a_full_spool_refuses(mortal_broker: OncelogBroker, new_topic: Callable[[], str], spool_dir: str) -> None:
    topic = new_topic()
    create_topic(mortal_broker, topic)
    with Producer(mortal_broker.bootstrap, spool_dir=spool_dir, spool_max_bytes=10_000) as producer:
        producer.partitions_for(topic)
        mortal_broker.kill()
        accepted = 0
        with pytest.raises(SpoolFull, match="spool_max_bytes"):  # noqa: PT012
            for value in numbers(0, 10_000):
                producer.send(topic, value)
                accepted += 1
        mortal_broker.start()
        producer.flush(WAIT_S)
        producer.send(topic, b"%d" % accepted).result(WAIT_S)
    assert values(mortal_broker, topic, accepted + 1) == numbers(0, accepted + 1)


def test_a_disk_that_refuses_numbers_for_a_while_loses_nothing(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    with Producer(oncelog_broker.bootstrap, spool_dir=spool_dir, retry_backoff_ms=5, batch_size=100) as producer:
        assert producer._spooling is not None
        spool, refusals = producer._spooling._spool, iter(range(5))
        number = spool.numbered

        def numbered(batches: Any) -> None:
            if next(refusals, None) is not None:
                raise SpoolWriteFailed("no space left on device")
            number(batches)

        monkeypatch.setattr(spool, "numbered", numbered)
        futures = [producer.send(topic, value) for value in numbers(0, 100)]
        assert futures[-1].result(WAIT_S).offset == 99
    assert next(refusals, None) is None, "it refused"
    assert values(oncelog_broker, topic, 100) == numbers(0, 100)


def test_a_damaged_record_is_named_and_the_rest_is_sent(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, topic, opened=0, waiting=10)
    (name,) = files(spool_dir, ".records")
    path = Path(spool_dir, name)
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.ERROR):
        Producer(oncelog_broker.bootstrap, spool_dir=spool_dir).close()
    stored = values(oncelog_broker, topic, 9)
    assert stored == sorted(stored)
    assert f"{path} is damaged at position" in caplog.text
    assert len(files(spool_dir, ".damaged")) == 1


# --- what an earlier process left -------------------------------------------------------------------------------------


def test_a_batch_that_never_arrived_is_sent_under_its_own_numbers(
    each_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(each_broker, topic)
    leave_behind(spool_dir, topic)
    with Producer(each_broker.bootstrap, spool_dir=spool_dir) as producer:
        producer.send(topic, b"8").result(WAIT_S)
        with Admin(each_broker.bootstrap) as admin:
            place = TopicPartition(topic, 0)
            states = {one.producer_id: one.last_sequence for one in admin.describe_producers([place])[place]}
    assert values(each_broker, topic, 9) == numbers(0, 9)
    assert states.pop(NEVER_SEEN) == 4
    assert list(states.values()) == [3], "new records go under a new id"


def test_a_batch_that_is_stored_is_not_sent_again(
    each_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str, tmp_path: Path
) -> None:
    """The acknowledgement was lost with the process: its spool is put back as it was before the batch was stored."""
    topic = new_topic()
    create_topic(each_broker, topic)
    leave_behind(spool_dir, topic, waiting=0)
    shutil.copytree(spool_dir, tmp_path / "before")
    for _ in range(2):
        shutil.rmtree(spool_dir)
        shutil.copytree(tmp_path / "before", spool_dir)
        Producer(each_broker.bootstrap, spool_dir=spool_dir).close()
    assert values(each_broker, topic, 5) == numbers(0, 5)


@only_at_full_size("Kafka starts twice")
@pytest.mark.kafka
def test_a_kafka_that_was_restarted_remembers_only_the_last_batch(
    tmp_path: Path, new_topic: Callable[[], str], spool_dir: str
) -> None:
    """It calls the batches before that one out of order, though it has them."""
    topic = new_topic()
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    broker = KafkaBroker(tmp_path / "kafka", {})
    with broker:
        create_topic(broker, topic)
        leave_behind(spool_dir, topic, opened=6, batch_size=2, waiting=0)
        shutil.copytree(spool_dir, tmp_path / "before")
        Producer(broker.bootstrap, spool_dir=spool_dir).close()
        broker.stop()
        broker.start()
        Producer(broker.bootstrap, spool_dir=str(tmp_path / "before")).close()
        assert values(broker, topic, 6) == numbers(0, 6)


@contextmanager
def patient() -> Iterator[None]:
    """Whoever makes a producer is told what the brokers say, however late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spooling, "MAX_ASKING_MS", 1000 * WAIT_S)
        yield


def refused(broker: BrokerProcess, spool_dir: str) -> str:
    with patient(), pytest.raises(SpoolFateUnknown) as caught:
        Producer(broker.bootstrap, spool_dir=spool_dir)
    return str(caught.value)


def test_a_producer_that_the_broker_forgot_is_a_question_for_the_user(
    each_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(each_broker, topic)
    leave_behind(spool_dir, topic, settled=2, base_sequence=2)
    for _ in range(2):  # a refusal changes nothing
        said = refused(each_broker, spool_dir)
        assert f"5 for {topic}-0" in said
        assert f"forgotten producer id {NEVER_SEEN}" in said
        assert spool_dir in said
        assert "spool_unknown=resend" in said
        assert "spool_unknown=discard" in said
    assert values(each_broker, topic, 0) == []


def test_a_topic_that_was_made_anew_is_a_question_too(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str, tmp_path: Path
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, topic, waiting=0)
    Producer(oncelog_broker.bootstrap, spool_dir=spool_dir).close()
    leave_behind(str(tmp_path / "later"), topic, settled=5, base_sequence=5)
    with Admin(oncelog_broker.bootstrap) as admin:
        admin.delete_topic(topic)
    create_topic(oncelog_broker, topic)
    assert "forgotten" in refused(oncelog_broker, str(tmp_path / "later"))


def test_an_expired_producer_id_is_a_question_too(tmp_path: Path, new_topic: Callable[[], str], spool_dir: str) -> None:
    topic = new_topic()
    config = {"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "10"}
    with OncelogBroker(tmp_path / "broker", config) as broker, Admin(broker.bootstrap) as admin:
        create_topic(broker, topic)
        leave_behind(spool_dir, topic, waiting=0)
        Producer(broker.bootstrap, spool_dir=spool_dir).close()
        place, deadline = TopicPartition(topic, 0), time.monotonic() + WAIT_S
        while admin.describe_producers([place])[place]:
            assert time.monotonic() < deadline, "the broker does not forget"
        leave_behind(str(tmp_path / "later"), topic, settled=5, base_sequence=5)
        assert "forgotten" in refused(broker, str(tmp_path / "later"))


def test_what_is_older_than_brokers_remember_is_a_question_too(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, topic, age_ms=REMEMBERED_MS + 60_000)
    assert "more than 12 hours ago" in refused(oncelog_broker, spool_dir)


def test_a_lost_journal_is_a_question_too(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, topic)
    os.remove(os.path.join(spool_dir, *files(spool_dir, ".journal")))
    said = refused(oncelog_broker, spool_dir)
    assert f"8 for {topic}-0" in said
    assert "journal" in said


def test_resend_sends_what_may_be_stored(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, topic, settled=2, base_sequence=2)
    with caplog.at_level(logging.WARNING):
        Producer(oncelog_broker.bootstrap, spool_dir=spool_dir, spool_unknown="resend").close()
    assert values(oncelog_broker, topic, 8) == numbers(2, 10)
    assert f"records 2 to 6 of {topic}-0" in caplog.text
    assert "spool_unknown=resend sends 5 of them (again)" in caplog.text
    assert files(spool_dir, ".records") == []


def test_discard_moves_what_may_be_stored_to_a_file(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, topic, settled=2, base_sequence=2)
    with caplog.at_level(logging.WARNING):
        Producer(oncelog_broker.bootstrap, spool_dir=spool_dir, spool_unknown="discard").close()
    assert values(oncelog_broker, topic, 3) == numbers(7, 10)
    path = Path(spool_dir, f"{topic}-0.2-6.discarded")
    assert [record.value for record in read_discarded(path.read_bytes())] == numbers(2, 7)
    assert str(path) in caplog.text


def test_without_a_broker_to_ask_a_producer_starts_and_asks_later(
    mortal_broker: OncelogBroker, new_topic: Callable[[], str], spool_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    create_topic(mortal_broker, topic)
    leave_behind(spool_dir, topic)
    mortal_broker.kill()
    with caplog.at_level(logging.WARNING):
        producer = Producer(mortal_broker.bootstrap, spool_dir=spool_dir, max_block_ms=100)
    assert "no leader tells yet" in caplog.text
    mortal_broker.start()
    deadline = time.monotonic() + WAIT_S
    while producer._spooling is not None and producer._spooling.sender.is_asking:
        assert time.monotonic() < deadline
    producer.close()
    assert values(mortal_broker, topic, 8) == numbers(0, 8)


def test_records_of_a_topic_that_is_gone_hold_up_no_others(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    gone, topic = "there is no such topic", new_topic()
    create_topic(oncelog_broker, topic)
    leave_behind(spool_dir, gone, opened=0)
    leave_behind(spool_dir, topic, opened=0)
    with Producer(oncelog_broker.bootstrap, spool_dir=spool_dir) as producer:
        producer.send(topic, b"3").result(WAIT_S)
    assert values(oncelog_broker, topic, 4) == numbers(0, 4)
    assert files(spool_dir, ".records") != [], "they wait for their topic"


# --- one fsync for many -----------------------------------------------------------------------------------------------


class SlowSpool:
    """A spool whose syncs take until they are told to end."""

    def __init__(self) -> None:
        self.begun: list[threading.Event] = []
        self.failure: BaseException | None = None
        self.has_begun = threading.Semaphore(0)

    def sync_request(self) -> SlowSpool:
        return self

    def run(self) -> None:
        may_end = threading.Event()
        self.begun.append(may_end)
        self.has_begun.release()
        assert may_end.wait(WAIT_S)
        if self.failure is not None:
            raise self.failure

    def synced(self, request: object) -> None: ...

    def sync_failed(self, error: OSError) -> None: ...


def committing(commits: GroupCommit, results: list[Exception | None]) -> threading.Thread:
    def commit() -> None:
        try:
            commits.commit()
            results.append(None)
        except SpoolWriteFailed as error:
            results.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


def test_those_who_come_during_a_sync_share_the_next() -> None:
    spool, results = SlowSpool(), list[Exception | None]()
    commits = GroupCommit(spool, threading.Lock())  # type: ignore[arg-type]
    first = committing(commits, results)
    assert spool.has_begun.acquire(timeout=WAIT_S)
    others = [committing(commits, results) for _ in range(10)]
    wait_until(lambda: commits._asked == 11)
    spool.begun[0].set()
    first.join(WAIT_S)
    assert results == [None], "the others came too late for the first one"
    assert spool.has_begun.acquire(timeout=WAIT_S)
    spool.begun[1].set()
    for thread in others:
        thread.join(WAIT_S)
    assert results == [None] * 11
    assert len(spool.begun) == 2


def test_an_interrupted_sync_is_somebody_elses_to_repeat() -> None:
    spool, results = SlowSpool(), list[Exception | None]()
    commits = GroupCommit(spool, threading.Lock())  # type: ignore[arg-type]
    spool.failure = KeyboardInterrupt()
    interrupted: list[BaseException] = []

    def commit() -> None:
        try:
            commits.commit()
        except KeyboardInterrupt as error:
            interrupted.append(error)

    first = threading.Thread(target=commit)
    first.start()
    assert spool.has_begun.acquire(timeout=WAIT_S)
    other = committing(commits, results)
    wait_until(lambda: commits._asked == 2)
    spool.begun[0].set()
    first.join(WAIT_S)
    assert len(interrupted) == 1
    assert spool.has_begun.acquire(timeout=WAIT_S)
    spool.failure = None
    spool.begun[1].set()
    other.join(WAIT_S)
    assert results == [None]


def test_a_failed_sync_fails_all_who_wait_for_it_and_all_later_ones() -> None:
    spool, results = SlowSpool(), list[Exception | None]()
    spool.failure = OSError(5, "Input/output error")
    commits = GroupCommit(spool, threading.Lock())  # type: ignore[arg-type]
    threads = [committing(commits, results)]
    assert spool.has_begun.acquire(timeout=WAIT_S)
    threads += [committing(commits, results) for _ in range(3)]
    wait_until(lambda: commits._asked == 4)
    spool.begun[0].set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(results) == 4
    assert all(isinstance(error, SpoolWriteFailed) for error in results)
    with pytest.raises(SpoolWriteFailed, match="not accepted"):
        commits.commit()
    assert len(spool.begun) == 1
