"""One worker of `process()`: the loop from poll to commit, written once for threads and for asyncio.

**The law: no effect of a batch is visible unless its offsets are committed, and the other way round.** Both are one
transaction. What cannot be committed is aborted, and its records are processed again: by this worker, which goes back
to where the batch began, or by whoever has the partitions by then.

**While one batch is sent and committed, the next one is read and transformed.** A transaction is begun when its results
are there, so the user's function may take its time. Two producers take turns: the offsets of a batch enter its
transaction while the batch before lands; its results follow when that one has landed. If it was aborted, so is the
other.

**Offsets in order.** The group's coordinator believes what was written last. Hence a batch's offsets are sent only when
those of the batch before are known to be written, and not under way once more.

**Who may commit?** The coordinator of the group checks who read the batch (KIP-447). Partitions are given up only when
the batch in flight has ended, one way or the other. Offsets go first into the transaction: whoever may not commit sends
nothing, and leaders are not asked while the coordinator still completes the transaction before.

A worker is a generator of steps: calls that a shell makes, waiting for what they return if it must be awaited, and
whose result or error it sends back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from oncelog.client.consumer_errors import ConsumerTimedOut, NotAssigned
from oncelog.client.consumer_records import NO_GENERATION, OffsetAndMetadata
from oncelog.client.failure_run import FailureRun
from oncelog.client.membership.backoff import Backoff
from oncelog.client.occasional import OccasionalWarning
from oncelog.client.transaction_errors import AbortNeeded, TransactionError
from oncelog.errors import KafkaError, UnknownTopicOrPartition
from oncelog.printable import counted
from oncelog.processing.batch import Batch, batch_of_records, batch_of_table, hint_at_batches
from oncelog.processing.ends import Ends
from oncelog.processing.job import Job
from oncelog.processing.outputs import checked_table, dead_letter, listed, place_of
from oncelog.processing.report import BatchReport, ProcessReport
from oncelog.processing.verdict import Verdict, verdict_of
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
Step = Callable[[], Any]
Steps = Generator[Step, Any, T]

POLL_S = 0.2
"""How long one poll waits for records; how soon a stop is noticed."""
WARNINGS_AT_ONCE = 10
"""So many dead letters are told of one by one in ten seconds; of the others there is a count."""
CLOSE_AFTER_FAILURE_S = 5.0
"""How long the clients of a worker that failed have to end what is under way. What they do not end is aborted by
whoever has the transactional id next."""
DEFAULT_LIMIT_MS = 60_000
"""How long no broker may be there while the end of the topics is to be reached, if the consumer does not say."""
LOOK_S = 5.0
"""How long the beginning waits to hear whether the target exists."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 2_000
"""Between attempts of what failed."""


class Shell(Protocol):
    """What a worker needs of the world."""

    def is_stopping(self) -> bool: ...

    def run(self, steps: Steps[Any]) -> Any: ...

    def send(self, producer: Any, target: str | None, outputs: list[Any]) -> Any: ...

    def send_table(self, producer: Any, target: str, table: Any) -> Any: ...

    def rest(self, seconds: float) -> Any: ...

    def clock_ms(self) -> int: ...

    def jitter(self) -> float: ...


@dataclass(frozen=True, slots=True)
class _InFlight:
    """Its commit was asked for."""

    producer: Any
    batch: Batch
    outputs: int
    dead_letters: int
    error: Exception | None
    """Why it was aborted instead."""


class Worker:
    def __init__(
        self, number: int, job: Job, consumer: Any, producers: Sequence[Any], shell: Shell, ends: Ends | None
    ) -> None:
        self.report = ProcessReport()
        self._number = number
        self._job = job
        self._consumer = consumer
        self._producers = deque(producers)
        """In the order of their turns."""
        self._shell = shell
        self._ends = ends
        self._in_flight: _InFlight | None = None
        self._undone: dict[TopicPartition, int] = {}
        """Where to go back to, since a batch was aborted."""
        self._committed: dict[TopicPartition, int] = {}
        self._given_up: set[TopicPartition] = set()
        """While more records were read for the batch in hand."""
        self._failures = FailureRun(job.max_failures_in_a_row)
        self._warning = OccasionalWarning(logger, at_once=WARNINGS_AT_ONCE)
        self._connected_ms = shell.clock_ms()
        """When a broker was last there to be asked."""
        self._backoff = Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, shell.jitter)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> Steps[None]:
        for producer in self._producers:
            yield from self._insist(producer.init_transactions)
        yield from self._look_for_target()
        yield lambda: self._consumer.subscribe(
            self._job.source,
            on_assigned=self._on_assigned,
            on_revoked=lambda _, partitions: self._shell.run(self._give_up(partitions)),
        )
        while not self._shell.is_stopping() and not (self._ends and self._ends.are_reached):
            yield from self._round()
        yield from self._land()

    def _look_for_target(self) -> Steps[None]:
        """A target that does not exist may be a mistake, and brokers create it without a word."""
        target, ask = self._job.target, getattr(self._consumer, "partitions_for_topic", None)
        if target is None or ask is None or self._number:
            return
        with suppress(ConsumerTimedOut, KafkaError):  # what is wrong with it the first record tells
            found = yield partial(ask, target, LOOK_S)
            if found is None:
                logger.warning(
                    "process(): the target %r does not exist: the first result creates it, if the broker has"
                    " auto.create.topics.enable; create it with `oncelog topics create %s` to choose its partitions",
                    target,
                    target,
                )

    def _round(self) -> Steps[None]:
        batch = yield from self._gather()
        if batch is None:
            self._check_connected()
        if self._undone:
            yield from self._go_back(batch)
        elif batch is None:
            yield from self._find_nothing()
        elif batch.reader.generation_id == NO_GENERATION:
            yield from self._go_back(batch)  # put out of the group just now; the next poll tells more
        else:
            yield from self._process(batch)

    def _process(self, batch: Batch) -> Steps[None]:
        outputs, failure = None, None
        try:
            outputs = yield from self._transform(batch.content)
        except Exception as error:
            failure = error
        if failure is None:
            is_in_order = yield from self._take_off(batch, count_of(outputs), 0, self._send(outputs))
        else:
            is_in_order = (yield from self._land()) and (yield from self._try_again(batch, failure))
        if not is_in_order:
            yield from self._go_back(batch)

    def _transform(self, content: Any) -> Steps[Any]:
        try:
            returned = yield lambda: self._job.function(content)
            return checked_table(returned) if self._job.tables else listed(returned)
        except AttributeError as error:
            hint = hint_at_batches(error, content)
            if hint is None:
                raise
            raise TypeError(f"{error}: {hint}") from error

    # --- reading ----------------------------------------------------------------------------------------------------

    def _gather(self) -> Steps[Batch | None]:
        """What waits, or comes soon; None if nothing does. Then look at `_undone`: perhaps it is to be read again."""
        limit = self._job.batch_records
        batch = yield from self._poll(0.0 if self._in_flight else POLL_S, limit)
        if batch is None and self._in_flight:
            yield from self._land()  # nothing to do meanwhile
            return None if self._undone else (yield from self._poll(POLL_S, limit))
        deadline_ms = self._shell.clock_ms() + self._job.batch_ms
        while batch is not None and batch.size < limit and not self._undone:
            left_ms = deadline_ms - self._shell.clock_ms()
            if left_ms <= 0:
                break
            self._given_up.clear()
            more = yield from self._poll(left_ms / 1000, limit - batch.size)
            if self._given_up:
                self._undo(batch, but_for=self._given_up)
                return more
            batch = batch if more is None else batch.joined(more)
        return batch

    def _poll(self, timeout_s: float, limit: int) -> Steps[Batch | None]:
        consumer = self._consumer
        if self._job.tables:
            table = yield lambda: consumer.read_table(timeout_s, max_records=limit)
            return batch_of_table(table, consumer.group_metadata()) if table.num_rows else None
        records = yield lambda: consumer.poll(timeout_s, max_records=limit)
        return batch_of_records(records, consumer.group_metadata()) if records else None

    def _undo(self, batch: Batch, but_for: Collection[TopicPartition] = ()) -> None:
        """Nothing came of it: its records are to be read again, but for those that are no longer ours to read."""
        for partition, offset in batch.firsts.items():
            if partition not in but_for:
                self._undone[partition] = min(offset, self._undone.get(partition, offset))

    def _go_back(self, batch: Batch | None) -> Steps[None]:
        """To where begins what was not committed, this batch among it."""
        if batch is not None:
            self._undo(batch)
        undone, self._undone = self._undone, {}
        for partition, offset in undone.items():
            if partition in self._consumer.assignment():
                with suppress(NotAssigned):  # it was lost just now
                    yield partial(self._consumer.seek, partition, offset)
        yield from self._pause()

    def _pause(self) -> Steps[None]:
        pause_s = self._backoff.next_ms() / 1000
        yield lambda: self._shell.rest(pause_s)

    # --- sending and committing -------------------------------------------------------------------------------------

    def _take_off(self, batch: Batch, outputs: int, dead_letters: int, sending: Steps[None]) -> Steps[bool]:
        """Into a transaction, whose commit goes on while the next batch is read. The batch before lands meanwhile.
        False if it did not, after all attempts: then nothing came of this one either."""
        if self._in_flight is not None:
            yield from self._insist(self._in_flight.producer.flush_transaction)
        self._producers.rotate()
        producer, error = self._producer, None
        producer.begin()
        yield lambda: producer.send_offsets_to_transaction(batch.nexts, batch.reader, wait=False)
        before, wrong = yield from self._touch_down()
        if before is not None and wrong is not None:
            yield from self._insist(producer.abort)
            is_mended = yield from self._mended(before.batch, wrong)
            return is_mended and (yield from self._take_off(batch, outputs, dead_letters, sending))
        try:
            yield from sending
            yield lambda: producer.commit(wait=False)
        except Exception as raised:
            error = yield from self._abort(producer, raised)
        self._in_flight = _InFlight(producer, batch, outputs, dead_letters, error)
        return True

    @property
    def _producer(self) -> Any:
        """Whose turn it is."""
        return self._producers[0]

    def _abort(self, producer: Any, error: Exception) -> Steps[Exception]:
        if isinstance(error, TransactionError) and not isinstance(error, AbortNeeded):
            raise error  # there is nothing to abort, or perhaps it is committed
        yield from self._insist(producer.abort)
        return error

    def _send(self, outputs: Any) -> Steps[None]:
        target = self._job.target
        if isinstance(outputs, list):
            yield lambda: self._shell.send(self._producer, target, outputs)
        elif count_of(outputs):
            assert target is not None, "a job with tables has a target"
            yield partial(self._shell.send_table, self._producer, target, outputs)

    def _insist(self, call: Step) -> Steps[Any]:
        """Until its outcome is known, or the call of `process()` is to end."""
        while True:
            try:
                return (yield call)
            except TransactionError as error:
                if verdict_of(error) is not Verdict.ASK_AGAIN or self._shell.is_stopping() or self._is_hopeless():
                    raise
                logger.warning("%s: %s", self._producer.config.transactional_id, error)

    def _is_hopeless(self) -> bool:
        """The call is to end by itself (`until_end`), and no broker was there for as long as one call may take
        (`default.api.timeout.ms` of the consumer). Without an end to reach, it is waited for as long as it takes."""
        now_ms = self._shell.clock_ms()
        clients = (self._consumer, *self._producers)
        if self._ends is None or any(getattr(one, "is_connected", True) for one in clients):
            self._connected_ms = now_ms
            return False
        return now_ms - self._connected_ms >= self._limit_ms

    @property
    def _limit_ms(self) -> int:
        limit_ms: int = getattr(getattr(self._consumer, "config", None), "default_api_timeout_ms", DEFAULT_LIMIT_MS)
        return limit_ms

    def _check_connected(self) -> None:
        if self._is_hopeless():
            raise ConsumerTimedOut(
                f"no broker can be reached for {self._limit_ms} ms (default.api.timeout.ms): {self._consumer!r}. Its"
                " log says why. Nothing is lost: what was not committed is read again by the next call"
            )

    def _land(self) -> Steps[bool]:
        """Until the batch in flight is committed, after more attempts if it must be. False if its records are to be
        read again."""
        landing, error = yield from self._touch_down()
        return landing is None or error is None or (yield from self._mended(landing.batch, error))

    def _mended(self, batch: Batch, error: Exception) -> Steps[bool]:
        """Whether the batch that was aborted is committed after all. If not, it is to be read again."""
        if verdict_of(error) is Verdict.FAILED and (yield from self._try_again(batch, error)):
            return True
        self._undo(batch)
        return False

    def _touch_down(self) -> Steps[tuple[_InFlight | None, Exception | None]]:
        """What was in flight, and why it was aborted, if it was."""
        landing, self._in_flight = self._in_flight, None
        if landing is None:
            return None, None
        error = landing.error
        if error is None:
            try:
                yield from self._insist(landing.producer.commit)
            except AbortNeeded as needed:
                error = yield from self._abort(landing.producer, needed)
        if error is None:
            yield from self._landed(landing)
        else:
            self._count(aborted=1)
            if verdict_of(error) is Verdict.GIVE_UP:
                raise blaming(error, landing.batch)
        return landing, error

    def _landed(self, landing: _InFlight) -> Steps[None]:
        batch, outputs, dead_letters = landing.batch, landing.outputs, landing.dead_letters
        self._backoff.reset()
        self._committed.update({partition: committed.offset for partition, committed in batch.nexts.items()})
        if not batch.size:
            return
        if dead_letters:
            self._failures.moved()
        else:
            self._failures.succeeded()
        self._count(batches=1, records=batch.size, outputs=outputs, dead_letters=dead_letters)
        on_batch = self._job.on_batch
        if on_batch is not None:
            report = BatchReport(self._number, batch.size, outputs, dead_letters, batch.nexts)
            yield lambda: on_batch(report)

    def _count(self, **counts: int) -> None:
        self.report = self.report + ProcessReport(**counts)

    # --- what cannot be processed -----------------------------------------------------------------------------------

    def _try_again(self, batch: Batch, failure: Exception) -> Steps[bool]:
        """All of it a few times; then record by record, if there is a place for those that are to blame. False if it
        is to be read again."""
        for _ in range(self._job.retries):
            self._count(failures=1)
            yield from self._pause()
            if self._shell.is_stopping():
                return False  # whoever reads next begins here
            try:
                outputs = yield from self._transform(batch.content)
            except Exception as error:
                failure = error
                continue
            yield from self._take_off(batch, count_of(outputs), 0, self._send(outputs))
            _, wrong = yield from self._touch_down()
            if wrong is None or verdict_of(wrong) is not Verdict.FAILED:
                return wrong is None
            failure = wrong
        self._count(failures=1)
        if self._job.dead_letter is None:
            raise blaming(failure, batch)
        return (yield from self._process_singly(batch, self._job.dead_letter))

    def _process_singly(self, batch: Batch, dead_letters: str) -> Steps[bool]:
        """One transaction all the same: the outputs of those that can be processed, the others as dead letters."""
        singles, results = list(batch.singles()), []
        for single in singles:
            try:
                results.append((yield from self._transform(single)))
            except Exception as error:
                self._failures.failed(place_of(single), error)
                results.append(error)
            else:
                self._failures.succeeded()
        while True:
            dead = sum(isinstance(result, Exception) for result in results)
            outputs = sum(count_of(result) for result in results if not isinstance(result, Exception))
            sending = self._send_singly(singles, results, dead_letters)
            yield from self._take_off(batch, outputs, dead, sending)
            _, wrong = yield from self._touch_down()
            if wrong is None or verdict_of(wrong) is not Verdict.FAILED:
                if wrong is None:
                    self._tell_burials(singles, results, dead_letters)
                return wrong is None
            if dead == sum(isinstance(result, Exception) for result in results):
                raise blaming(wrong, batch)  # not one more of them is known to be bad

    def _tell_burials(self, singles: list[Any], results: list[Any], dead_letters: str) -> None:
        for single, result in zip(singles, results, strict=True):
            if isinstance(result, Exception):
                told = "%s went to the dead-letter topic %r: %r"
                self._warning.give(self._shell.clock_ms(), told, place_of(single), dead_letters, result)

    def _send_singly(self, singles: list[Any], results: list[Any], dead_letters: str) -> Steps[None]:
        """A result that cannot be sent is replaced by the reason."""
        for index, (single, result) in enumerate(zip(singles, results, strict=True)):
            if isinstance(result, Exception):
                letter = dead_letter(dead_letters, single, result, self._job.group)
                yield partial(self._shell.send, self._producer, None, [letter])
                continue
            try:
                yield from self._send(result)
            except Exception as error:
                if verdict_of(error) is Verdict.FAILED and not isinstance(error, AbortNeeded):
                    results[index] = error
                raise

    # --- when there is nothing to read ------------------------------------------------------------------------------

    def _find_nothing(self) -> Steps[None]:
        """Offsets behind the last record, such as those of transactions' ends, are committed when there is time."""
        positions = yield from self._positions()
        ahead = {
            partition: OffsetAndMetadata(position)
            for partition, position in positions.items()
            if position > self._committed.setdefault(partition, position)
        }
        reader = self._consumer.group_metadata()
        if ahead and reader.generation_id != NO_GENERATION:
            yield from self._take_off(Batch([], 0, {}, ahead, reader), 0, 0, self._send([]))
            yield from self._touch_down()  # if it was aborted, there will be another time
        if self._ends is not None:
            yield from self._look_for_ends(self._ends, positions)

    def _positions(self) -> Steps[dict[TopicPartition, int]]:
        found = {}
        for partition in self._consumer.assignment():
            with suppress(ConsumerTimedOut, NotAssigned):  # it is not known yet, or was lost just now
                found[partition] = yield partial(self._consumer.position, partition, 0)
        return found

    def _look_for_ends(self, ends: Ends, positions: dict[TopicPartition, int]) -> Steps[None]:
        missing: frozenset[str] = getattr(self._consumer, "missing_topics", frozenset())
        if not positions and self._job.source_names and missing >= self._job.source_names:
            names = ", ".join(sorted(missing))
            raise UnknownTopicOrPartition(f"there is nothing to read up to its end: no topic {names} exists")
        if not positions and getattr(self._consumer, "matches_nothing", False):
            ends.nothing_to_read()
            return
        orphans = ends.orphans()
        unknown = [partition for partition in (*positions, *orphans) if partition not in ends.known]
        with suppress(ConsumerTimedOut):  # there will be another time
            if unknown:
                ends.known.update((yield lambda: self._consumer.end_offsets(*unknown)))
            if orphans:
                committed = yield lambda: self._consumer.committed(*orphans)
                ends.done_elsewhere({place: one.offset for place, one in committed.items() if one is not None})
            if positions.keys() == self._consumer.assignment():
                ends.found(self._number, positions)

    # --- the group --------------------------------------------------------------------------------------------------

    def _on_assigned(self, _: Any, partitions: Iterable[TopicPartition]) -> None:
        if self._ends is not None:
            self._ends.taken(self._number, partitions)

    def _give_up(self, partitions: list[TopicPartition]) -> Steps[None]:
        """Before they go, or when they are gone: what is in flight comes to its end. Who lost them cannot commit."""
        landing, error = yield from self._touch_down()
        if landing is not None and error is not None:
            self._undo(landing.batch)
        self._given_up.update(partitions)
        for partition in partitions:
            self._undone.pop(partition, None)
            self._committed.pop(partition, None)
        if self._ends is not None:
            self._ends.gave_up(self._number, partitions)


def count_of(outputs: Any) -> int:
    if isinstance(outputs, list):
        return len(outputs)
    return 0 if outputs is None else int(outputs.num_rows)


def blaming(error: Exception, batch: Batch) -> Exception:
    """The error, with a note of what was being processed."""
    places = ", ".join(f"{place} from offset {offset}" for place, offset in sorted(batch.firsts.items()))
    error.add_note(
        f"while processing {counted(batch.size, 'record')} of {places}: nothing of them is visible, and no"
        " offset was committed"
    )
    return error
