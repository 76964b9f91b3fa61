"""The worker's steps against clients that fail on command: what is read again, what is committed, what is raised."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.client.consumer_errors import ConsumerTimedOut
from oncelog.client.consumer_records import NO_GENERATION, GroupMetadata
from oncelog.client.failure_run import FailureRun, TooManyFailures
from oncelog.client.records import ProducerRecord
from oncelog.client.transaction_errors import AbortNeeded, OutcomeUnknown, TransactionalProducerFenced
from oncelog.errors import FencedInstanceId, IllegalGeneration, MessageTooLarge, UnknownTopicOrPartition
from oncelog.processing.ends import Ends
from oncelog.processing.job import Job
from oncelog.processing.worker import Steps, Worker
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TimestampType, TopicPartition

A, B = TopicPartition("source", 0), TopicPartition("source", 1)
LOG = {A: [b"a%d" % offset for offset in range(6)], B: [b"b%d" % offset for offset in range(6)]}


class FakeConsumer:
    """Reads LOG, one partition a poll, and does to itself what the test has planned for a poll."""

    def __init__(self) -> None:
        self.positions = {A: 0, B: 0}
        self.generation = 1
        self.plans: dict[int, Callable[[], None]] = {}
        self.polls = 0
        self.topics = {"source", "target"}
        self._listener: dict[str, Any] = {}

    def subscribe(self, topics: Any, **listener: Any) -> None:
        self._listener = listener

    def poll(self, timeout: float, *, max_records: int) -> list[ConsumerRecord]:
        self.polls += 1
        self.plans.pop(self.polls, lambda: None)()
        for partition in sorted(self.positions):
            begin = self.positions[partition]
            values = LOG[partition][begin : begin + max_records]
            if values:
                self.positions[partition] += len(values)
                kind = TimestampType.CREATE_TIME
                return [
                    ConsumerRecord(*partition, begin + index, 0, kind, None, value, ())
                    for index, value in enumerate(values)
                ]
        return []

    def revoke(self, partition: TopicPartition) -> None:
        self._listener["on_revoked"](self, [partition])
        del self.positions[partition]

    def assign(self, partition: TopicPartition, position: int) -> None:
        self.positions[partition] = position
        self._listener["on_assigned"](self, [partition])

    def partitions_for_topic(self, topic: str, timeout: float) -> set[int] | None:
        return {0} if topic in self.topics else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    def position(self, partition: TopicPartition, timeout: float) -> int:
        return self.positions[partition]

    def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        raise ConsumerTimedOut("not asked for")

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("group", self.generation, "me")


class FakeCluster:
    """Remembers what became visible, and fails when it is told to."""

    def __init__(self) -> None:
        self.visible: list[bytes] = []
        self.committed: dict[TopicPartition, int] = {}
        self.commit_failures: deque[Exception | None] = deque()
        self.aborts = 0
        self.aborted: list[bytes] = []
        self.unheard = 0
        self.most_open = 0
        self.is_offset_under_way = False
        """An offset that is sent now may be written before it."""
        self.open: list[FakeProducer] = []


class FakeProducer:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._records: list[bytes] = []
        self._offsets: dict[TopicPartition, int] = {}
        self.config = type("Config", (), {"transactional_id": "id"})

    def init_transactions(self) -> None: ...

    def begin(self) -> None:
        cluster = self._cluster
        assert self not in cluster.open
        cluster.open.append(self)
        cluster.most_open = max(cluster.most_open, len(cluster.open))
        self._records, self._offsets = [], {}

    def send(self, topic: str, value: bytes) -> None:
        assert self._cluster.open == [self], "records of the batch before could still be stored behind it"
        self._records.append(value)

    def send_offsets_to_transaction(self, offsets: Any, group: GroupMetadata, *, wait: bool) -> None:
        assert not wait, "the commit tells"
        assert group.generation_id != NO_GENERATION, "brokers would take offsets of nobody in particular"
        assert not self._cluster.is_offset_under_way, "that one would be believed"
        self._offsets = {partition: committed.offset for partition, committed in offsets.items()}
        self._cluster.is_offset_under_way = True

    def flush_transaction(self) -> None:
        self._cluster.is_offset_under_way = False

    def commit(self, *, wait: bool = True) -> None:
        if not wait:
            return
        cluster = self._cluster
        assert self is cluster.open[0]
        failure = cluster.commit_failures.popleft() if cluster.commit_failures else None
        if failure is not None:
            cluster.unheard += isinstance(failure, OutcomeUnknown)
            raise failure
        cluster.visible += self._records
        cluster.committed.update(self._offsets)
        self._end()

    def abort(self) -> None:
        self._cluster.aborts += 1
        self._cluster.aborted += self._records
        self._end()

    def _end(self) -> None:
        self._cluster.open.remove(self)
        self._cluster.is_offset_under_way = self._cluster.is_offset_under_way and bool(self._cluster.open)


class InlineShell:
    """Commits happen when somebody waits for them. Stops when everything was read and nothing is left to do."""

    def __init__(self, consumer: FakeConsumer, cluster: FakeCluster) -> None:
        self.rests = 0
        self.is_told_to_stop = False
        self._now_ms = 0
        self._consumer = consumer
        self._cluster = cluster

    def is_stopping(self) -> bool:
        wanted = {partition: len(LOG[partition]) for partition in self._consumer.positions}
        is_done = all(self._cluster.committed.get(partition) == end for partition, end in wanted.items())
        return self.is_told_to_stop or is_done

    def run(self, steps: Steps[Any]) -> Any:
        result, error = None, None
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result, error = None, None
            try:
                result = step()
            except Exception as raised:
                error = raised

    def send(self, producer: FakeProducer, target: str | None, outputs: list[Any]) -> None:
        for output in outputs:
            producer.send("target", output.value if isinstance(output, ProducerRecord) else output)

    def send_table(self, producer: FakeProducer, target: str, table: Any) -> None:
        raise AssertionError("no tables here")

    def rest(self, seconds: float) -> None:
        self.rests += 1
        assert self.rests < 100, "it goes round in circles"

    def clock_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def jitter(self) -> float:
        return 0.5


class Scene:
    def __init__(self, **changes: Any) -> None:
        self.consumer, self.cluster = FakeConsumer(), FakeCluster()
        self.shell = InlineShell(self.consumer, self.cluster)
        self.calls: list[bytes] = []
        usual: dict[str, Any] = {
            "source": "source",
            "function": self.function,
            "target": "target",
            "servers": "nowhere:1",
            "group": "group",
            "transactional_id": "id",
            "batch_records": 3,
            "batch_ms": 0,
            "retries": 2,
        }
        producers = [FakeProducer(self.cluster), FakeProducer(self.cluster)]
        self.worker = Worker(0, Job(**{**usual, **changes}), self.consumer, producers, self.shell, None)

    def function(self, records: list[ConsumerRecord]) -> list[bytes]:
        self.calls += [record.value for record in records]
        return [record.value for record in records]

    def run(self) -> None:
        self.shell.run(self.worker.run())


ALL = [*LOG[A], *LOG[B]]


def lost(cause: Exception) -> AbortNeeded:
    error = AbortNeeded("lost")
    error.__cause__ = cause
    return error


def refusals(count: int) -> list[Exception]:
    return [lost(MessageTooLarge("")) for _ in range(count)]


def test_everything_once_in_order() -> None:
    scene = Scene()
    scene.run()
    assert scene.cluster.visible == scene.calls == ALL
    assert scene.worker.report.batches == 4
    assert scene.cluster.most_open == 2, "a batch enters while the one before lands"


def test_a_batch_that_was_aborted_is_read_again_and_so_is_the_next_one() -> None:
    """The next one was transformed while the first was to be committed: its results are never sent."""
    scene = Scene()
    scene.cluster.commit_failures.extend([None, lost(IllegalGeneration(""))])
    scene.run()
    assert scene.cluster.visible == ALL
    assert scene.calls == [*LOG[A], *LOG[B][:3], *LOG[A][3:], *LOG[B]]
    assert (scene.cluster.aborts, scene.worker.report.aborted) == (2, 1)
    assert scene.cluster.aborted == LOG[A][3:]


def test_a_batch_that_is_aborted_again_while_it_is_tried_again() -> None:
    scene = Scene()
    scene.cluster.commit_failures.extend([*refusals(1), lost(IllegalGeneration(""))])
    scene.run()
    assert scene.cluster.visible == ALL
    assert scene.calls == [*LOG[A], *LOG[A][:3], *ALL]


def test_a_batch_that_is_committed_at_last_does_not_disturb_the_next_one() -> None:
    scene = Scene()
    scene.cluster.commit_failures.extend(refusals(2))
    scene.run()
    assert scene.cluster.visible == ALL
    assert scene.calls == [*LOG[A], *LOG[A][:3], *LOG[A][:3], *LOG[B]]


def test_an_outcome_is_asked_for_until_it_is_known() -> None:
    scene = Scene()
    scene.cluster.commit_failures.extend([OutcomeUnknown("?"), OutcomeUnknown("?"), None])
    scene.run()
    assert scene.cluster.unheard == 2
    assert scene.cluster.visible == scene.calls == ALL


def test_whoever_stops_while_an_outcome_is_not_known_hears_so() -> None:
    scene = Scene()
    scene.cluster.commit_failures.append(OutcomeUnknown("?"))
    scene.consumer.plans[2] = lambda: setattr(scene.shell, "is_told_to_stop", True)
    with pytest.raises(OutcomeUnknown):
        scene.run()
    assert scene.cluster.visible == []
    assert scene.cluster.aborts == 0, "perhaps it was committed"


def test_partitions_that_are_revoked_go_with_their_batch_committed() -> None:
    scene = Scene()
    scene.consumer.plans[2] = lambda: scene.consumer.revoke(A)
    scene.run()
    assert scene.cluster.committed == {A: 3, B: 6}
    assert scene.cluster.visible == [*LOG[A][:3], *LOG[B]]


def test_partitions_that_are_revoked_are_left_alone_afterwards() -> None:
    """Their batch was aborted. Whoever has them now has committed more since, and gives them back."""
    scene = Scene()
    scene.cluster.commit_failures.append(lost(IllegalGeneration("")))

    def rebalance() -> None:
        scene.consumer.revoke(A)
        scene.consumer.assign(A, 5)

    scene.consumer.plans[2] = rebalance
    scene.run()
    assert scene.cluster.visible == [b"a5", *LOG[B]]


def test_partitions_that_go_while_a_batch_is_gathered() -> None:
    """What was gathered of those that stay is read again; of the others, nothing is committed."""
    scene = Scene(batch_records=8, batch_ms=10)
    scene.consumer.plans[2] = lambda: scene.consumer.revoke(A)
    scene.run()
    assert scene.cluster.visible == LOG[B]
    assert scene.cluster.committed == {B: 6}


def test_records_of_one_who_was_put_out_of_the_group_are_not_processed() -> None:
    scene = Scene()
    scene.consumer.plans[1] = lambda: setattr(scene.consumer, "generation", NO_GENERATION)
    scene.consumer.plans[2] = lambda: setattr(scene.consumer, "generation", 2)
    scene.run()
    assert scene.cluster.visible == scene.calls == ALL


def test_what_brokers_refuse_again_and_again_is_raised() -> None:
    scene = Scene()
    scene.cluster.commit_failures.extend(refusals(3))
    with pytest.raises(AbortNeeded) as raised:
        scene.run()
    assert "source-0" in raised.value.__notes__[0]
    assert scene.cluster.visible == []
    assert scene.cluster.aborts == 4, "three attempts, and the batch that was about to follow the first"


def test_what_brokers_refuse_now_and_then_is_not() -> None:
    scene = Scene()
    scene.cluster.commit_failures.extend([*refusals(2), None, *refusals(2)])
    scene.run()
    assert sorted(scene.cluster.visible) == ALL


@pytest.mark.parametrize("error", [TransactionalProducerFenced("another"), lost(FencedInstanceId(""))])
def test_whoever_was_replaced_gives_up(error: Exception) -> None:
    scene = Scene()
    scene.cluster.commit_failures.extend([None, error])
    with pytest.raises(type(error)):
        scene.run()
    assert scene.cluster.visible == LOG[A][:3]


def failing(is_bad: Callable[[bytes], bool]) -> Callable[[list[ConsumerRecord]], list[bytes]]:
    def function(records: list[ConsumerRecord]) -> list[bytes]:
        if any(is_bad(record.value) for record in records):
            raise ValueError("no such table")
        return [record.value for record in records]

    return function


def test_a_mistake_in_the_function_does_not_move_the_whole_topic_away(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(function=failing(lambda _: True), dead_letter="dead", retries=0, max_failures_in_a_row=4)
    with pytest.raises(TooManyFailures, match=r"4 records in a row failed \(.*\), and now .* at offset") as raised:
        scene.run()
    assert "3 of them went to the dead-letter topic; source-0 at offset 3 and" in str(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)
    assert scene.cluster.visible == ALL[:3], "the first batch, as dead letters; of the second nothing"
    told = [
        record.getMessage() for record in caplog.records if "went to the dead-letter topic 'dead'" in record.message
    ]
    assert len(told) == 3
    assert told[0].startswith("source-0 at offset 0 went to the dead-letter topic 'dead': ValueError")


def test_a_batch_in_which_all_fail_moves_nothing_and_says_so() -> None:
    scene = Scene(function=failing(lambda _: True), dead_letter="dead", retries=0, max_failures_in_a_row=2)
    with pytest.raises(TooManyFailures) as raised:
        scene.run()
    assert scene.cluster.visible == []
    assert scene.cluster.committed == {}
    said = str(raised.value)
    assert said.startswith(
        "2 records in a row failed (source-0 at offset 0, source-0 at offset 1), and now source-0 at offset 2: "
    )
    assert (
        "None of them was moved to the dead-letter topic: nothing of their batch is visible, its offsets are not"
        in said
    )


def test_records_that_are_read_again_count_once() -> None:
    """A rebalance undid their dead letters: they are no longer a run than before."""
    scene = Scene(function=failing(lambda value: value in LOG[A][:3]), dead_letter="dead", retries=0)
    scene.worker._failures = FailureRun(3)
    scene.cluster.commit_failures.extend([lost(IllegalGeneration("")), None])
    scene.run()
    assert sorted(scene.cluster.visible) == ALL


def test_dead_letters_with_a_success_between_them_are_no_run() -> None:
    bad = failing(lambda value: value in ALL[::2])
    scene = Scene(function=bad, dead_letter="dead", retries=0, max_failures_in_a_row=2)
    scene.run()
    assert sorted(scene.cluster.visible) == ALL
    assert scene.worker.report.dead_letters == len(ALL[::2])


def test_no_topic_to_read_is_no_end() -> None:
    scene = Scene()
    scene.consumer.positions.clear()
    scene.consumer.missing_topics = frozenset({"source"})  # type: ignore[attr-defined]
    scene.worker._ends = Ends(1)
    with pytest.raises(UnknownTopicOrPartition, match="no topic source exists"):
        scene.shell.run(scene.worker._look_for_ends(scene.worker._ends, {}))


def test_a_pattern_that_matches_no_topic_has_reached_its_end() -> None:
    scene = Scene()
    scene.consumer.positions.clear()
    scene.worker._ends = Ends(1)
    scene.shell.run(scene.worker._look_for_ends(scene.worker._ends, {}))
    assert not scene.worker._ends.are_reached, "nobody has said so yet"
    scene.consumer.matches_nothing = True  # type: ignore[attr-defined]
    scene.shell.run(scene.worker._look_for_ends(scene.worker._ends, {}))
    assert scene.worker._ends.are_reached


@pytest.mark.parametrize("until_end", [True, False])
def test_brokers_that_are_away_end_what_is_to_end(until_end: bool) -> None:
    scene = Scene()
    scene.consumer.is_connected = False  # type: ignore[attr-defined]
    for producer in scene.worker._producers:
        producer.is_connected = False
    scene.worker._ends = Ends(1) if until_end else None
    scene.worker._check_connected()
    scene.shell._now_ms += 60_000
    if until_end:
        with pytest.raises(ConsumerTimedOut, match=r"no broker can be reached for 60000 ms \(default.api.timeout.ms\)"):
            scene.worker._check_connected()
    else:
        scene.worker._check_connected()


def test_a_stop_between_attempts_leaves_the_batch_to_the_next_one() -> None:
    def function(records: list[ConsumerRecord]) -> Any:
        scene.shell.is_told_to_stop = True
        raise ValueError("not now")

    scene = Scene(function=function)
    scene.run()
    assert scene.worker.report.failures == 1
    assert scene.cluster.committed == {}


@pytest.mark.parametrize(("target", "is_told"), [("target", False), ("tarket", True)])
def test_a_target_that_does_not_exist_is_told_of(target: str, is_told: bool, caplog: pytest.LogCaptureFixture) -> None:
    Scene(target=target).run()
    told = "the target 'tarket' does not exist: the first result creates it"
    assert (told in caplog.text) is is_told
