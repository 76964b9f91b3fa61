"""The producer's real core (accumulator, sender, network) in a world of its own: a model cluster and a fake clock.

The world plays the driver: it polls the core exactly when the core asked for it or when something happened, performs
its effects on the model's lines, and hands answers back. Nothing moves unless a method here is called, and every method
takes plain numbers, so that Hypothesis or a seeded generator can play it.

The promises of the producer are the named functions at the end; each looks at a world and raises if it is broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import RecordFuture
from oncelog.client.driven import advance
from oncelog.client.idempotence import Idempotence
from oncelog.client.network import Network
from oncelog.client.network_events import Close, Connect, Write
from oncelog.client.network_settings import NetworkSettings
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import DeliveryFailed
from oncelog.client.sender import EXPIRY_PERIOD_MS, SenderCore
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.sim.model_cluster import FIRST_PORT, VERSIONS, Line, ModelCluster
from tests.sim.model_partition import FailAfterAppend, Refuse

TOPIC = "t"
PARTITIONS = 3
SETTINGS = {
    "linger_ms": 5,
    "batch_size": 300,
    "max_request_size": 900,
    "buffer_memory": 60_000,
    "request_timeout_ms": 400,
    "delivery_timeout_ms": 4_000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
    "metadata_max_age_ms": 1_000,
}
"""Everything small, so that a few records fill batches, requests and memory, and a few seconds are a long time."""

WALL_MS = 1_700_000_000_000
MAX_IDLE_POLLS = 50
"""So often in a row the core may ask to be polled again at once without having done anything."""

REFUSALS = (2, 3, 5, 6, 7, 19, 56, 74, 89)
"""What a broker may answer, retriable, to a batch that it did not write."""
LATE_FAILURES = (6, 7, 20)
"""What it may answer, retriable, to a batch that it wrote."""
ID_REFUSALS = (14, 15, 16, 51)
METADATA_REFUSALS = (3, 5)


class BrokenPromiseError(AssertionError):
    """The producer did what it must never do."""


@dataclass(eq=False)
class Sent:
    """A record that `send` accepted."""

    partition: TopicPartition
    number: int
    """In its partition, in the order of sending."""
    value: bytes
    sent_ms: int
    future: RecordFuture | None = None
    is_reported: bool = False
    error: Exception | None = None
    offset: int = -1

    @property
    def is_delivered(self) -> bool:
        return self.is_reported and self.error is None

    @property
    def is_surely_unwritten(self) -> bool:
        """Reported as failed, and not as perhaps written."""
        if self.error is None:
            return False
        return not (isinstance(self.error, DeliveryFailed) and self.error.may_be_written)


def no_waiter() -> Any:
    raise AssertionError("nobody waits in a simulation")


class ProducerWorld:
    def __init__(
        self,
        *,
        jitter: Callable[[], float] = lambda: 0.5,
        max_message_bytes: int = 1_000,
        produce_version: int = 13,
        leader_hints: bool = True,
        first_position: int = 0,
        new_idempotence: Callable[[], Idempotence] | None = None,
        network: type[Network] = Network,
        cluster: ModelCluster | None = None,
        name: str = "",
        **settings: Any,
    ) -> None:
        """`name` tells the records of several producers apart that share a cluster. Every bump of the epoch is looked
        at, unless `new_idempotence` says who numbers batches."""
        self._name = name
        self.cluster = cluster or ModelCluster(
            {TOPIC: PARTITIONS},
            max_message_bytes=max_message_bytes,
            versions={**VERSIONS, ApiKey.PRODUCE: (0, produce_version)},
            leader_hints=leader_hints,
        )
        self.config = ProducerConfig.of(f"node0:{FIRST_PORT},node1:{FIRST_PORT + 1}", **{**SETTINGS, **settings})
        self.now_ms = 1_000
        self.sent: list[Sent] = []
        self.reports: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        """Per partition the numbers of the records in the order in which their fate was reported."""
        self.most_in_flight = 0
        self.requests_arrive_late = True
        """Whether requests on lines that the client closes are still to arrive some time."""
        self._links: dict[int, Line] = {}
        self._unanswered: Counter[Line] = Counter()
        self._next_number: Counter[TopicPartition] = Counter()
        self._sleep_ms = 0
        self._idle_polls = 0
        self.accumulator = Accumulator(
            batch_size=self.config.batch_size,
            buffer_memory=self.config.buffer_memory,
            max_request_size=self.config.max_request_size,
            lock=None,
            new_waiter=no_waiter,
        )
        self.counters = ProducerCounters(self.now_ms)
        self.core = SenderCore(
            self.config,
            self.accumulator,
            network(_network_settings(self.config), jitter),
            self.counters,
            jitter=jitter,
            on_settled=self._settled,
            on_news=lambda: None,
            new_idempotence=new_idempotence or partial(WatchedIdempotence, self),
        )
        self._learn_topic(first_position)

    # --- what a user does -----------------------------------------------------------------------------------------

    def send(self, partition: int, value_bytes: int = 20) -> bool:
        """False if there is no memory for another record."""
        queue = self.queue(partition)
        name = TopicPartition(TOPIC, partition % PARTITIONS)
        number = self._next_number[name]
        value = f"{self._name}{name}#{number}".encode().ljust(value_bytes, b".")
        sent = Sent(name, number, value, self.now_ms)
        record = (queue, WALL_MS + self.now_ms, None, value, (), partial(self._reported, sent))
        sent.future = self.accumulator.append(*record) or self.accumulator.append_anew(*record, self.now_ms)
        if sent.future is not None:
            self._next_number[name] += 1
            self.sent.append(sent)
        self._poll()
        return sent.future is not None

    def set_flushing(self, is_flushing: bool) -> None:
        self.accumulator.flushing = int(is_flushing)
        self._poll()

    def queue(self, partition: int) -> PartitionQueue:
        return self.accumulator.topics[TOPIC].queues[partition % PARTITIONS]

    # --- what the cluster does --------------------------------------------------------------------------------------

    def serve(self, index: int) -> None:
        """A node takes a request and answers it; the answer is under way."""
        if self.lines:
            self.lines[index % len(self.lines)].serve()
            self._notice_ended()

    def answer(self, index: int) -> None:
        """An answer arrives."""
        lines = [line for line in self.lines if line.answers]
        if lines:
            self._receive(lines[index % len(lines)])

    def settle_down(self) -> None:
        """Everything under way arrives, and all that follows from it."""
        for _ in range(1_000):
            busy = [line for line in self.lines if line.requests and not line.is_stalled]
            answers = [line for line in self.lines if line.answers]
            if not busy and not answers:
                return
            for line in busy:
                line.serve()
            self._notice_ended()
            for line in answers:
                if line.is_open and line.answers:
                    self._receive(line)
        raise BrokenPromiseError("requests and answers go round in circles without any time passing")

    def cut(self, index: int, requests_arrive: bool) -> None:
        """A connection breaks. Answers under way are lost; requests too, or they arrive later."""
        if self.lines:
            self.lines[index % len(self.lines)].end(requests_arrive=requests_arrive)
            self._notice_ended()

    def stall(self, index: int) -> None:
        """A connection goes silent: what is on it is lost, and nobody is told."""
        if self.lines:
            self.lines[index % len(self.lines)].stall()

    def stop_node(self, node_id: int) -> None:
        """One node at a time."""
        if not self.cluster.stopped:
            self.cluster.stop(node_id % len(self.cluster.nodes))
            self._notice_ended()

    def start_node(self) -> None:
        for node_id in tuple(self.cluster.stopped):
            self.cluster.start(node_id)

    def change_leader(self, partition: int, node_id: int, keep_unreplicated: bool, published: bool) -> None:
        name = TopicPartition(TOPIC, partition % PARTITIONS)
        self.cluster.change_leader(
            name, node_id % len(self.cluster.nodes), keep_unreplicated=keep_unreplicated, published=published
        )

    def refuse(self, partition: int, code: int) -> None:
        self.cluster.plan(TopicPartition(TOPIC, partition % PARTITIONS), Refuse(code))

    def fail_after_append(self, partition: int, code: int) -> None:
        self.cluster.plan(TopicPartition(TOPIC, partition % PARTITIONS), FailAfterAppend(code))

    def deliver_straggler(self, index: int) -> None:
        if self.cluster.stragglers:
            self.cluster.deliver_straggler(index % len(self.cluster.stragglers))

    def lose_straggler(self, index: int) -> None:
        if self.cluster.stragglers:
            self.cluster.lose_straggler(index % len(self.cluster.stragglers))

    @property
    def lines(self) -> list[Line]:
        """Connections as the client sees them."""
        return [line for line in self._links.values() if line.is_open]

    # --- time -------------------------------------------------------------------------------------------------------

    def pass_time(self, duration_ms: int, *, healthy: bool = False) -> None:
        """Let time pass; `healthy`: with a cluster that answers at once."""
        end_ms = self.now_ms + duration_ms
        while True:
            if healthy:
                self.settle_down()
            step_ms = min(self._sleep_ms, end_ms - self.now_ms)
            if step_ms == 0 and self.now_ms == end_ms:
                no_record_waits_too_long(self)
                return
            self._idle_polls = 0 if step_ms else self._idle_polls + 1
            if self._idle_polls > MAX_IDLE_POLLS:
                raise BrokenPromiseError(
                    f"the core spins: it wants to be polled at once, {MAX_IDLE_POLLS} times in a row"
                )
            self.now_ms += step_ms
            self._poll()

    def finish(self) -> None:
        """The trouble is over: whatever was sent gets its answer, what was late arrives, and sending works again."""
        self.heal()
        self.set_flushing(False)
        self.pass_time(self.long_ms, healthy=True)
        every_record_is_answered(self)
        while self.cluster.stragglers:
            self.deliver_straggler(0)
        last = len(self.sent)
        for partition in range(PARTITIONS):
            assert self.send(partition)
        self.pass_time(self.long_ms, healthy=True)
        self._cross_check_futures()
        failed = [sent.error for sent in self.sent[last:] if not sent.is_delivered]
        if failed:
            raise BrokenPromiseError(f"sending does not work again although all is well: {failed}")

    def close(self, timeout_ms: int) -> None:
        """Close the producer in the midst of it all; what is under way afterwards arrives."""
        self.core.close_at_ms = self.now_ms + timeout_ms
        self._poll()
        while not self.core.is_finished:
            self.pass_time(10, healthy=True)
        while self.cluster.stragglers:
            self.deliver_straggler(0)
        self._cross_check_futures()

    def heal(self) -> None:
        self.start_node()
        self.cluster.publish()
        self.cluster.throttle_ms = 0
        self.cluster.forgive()

    @property
    def long_ms(self) -> int:
        """After so long every record has an answer, and every connection that went silent was noticed."""
        return self.config.delivery_timeout_ms + 3 * self.config.request_timeout_ms

    # --- the driver ---------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """One pass of a driver, and another whenever performing the effects made news."""
        has_news = True
        while has_news:
            self._sleep_ms = advance(self.core, self.now_ms)
            has_news = False
            for effect in self.core.network.take_effects():
                if isinstance(effect, Connect):
                    self._connect(effect)
                    has_news = True
                elif isinstance(effect, Write):
                    self._write(effect)
                else:
                    self._close(effect)

    def _connect(self, effect: Connect) -> None:
        line = self.cluster.connect(effect.port - FIRST_PORT)
        if line is None:
            self._handle(self.core.network.lost(effect.link, "connection refused", self.now_ms))
        else:
            self._links[effect.link] = line
            self.core.network.opened(effect.link, self.now_ms)

    def _write(self, effect: Write) -> None:
        line = self._links[effect.link]
        before = line.written
        line.write(b"".join(bytes(buffer) for buffer in effect.buffers))
        if self.config.acks != 0:
            self._unanswered[line] += line.written - before
            self.most_in_flight = max(self.most_in_flight, self._unanswered[line])

    def _close(self, effect: Close) -> None:
        line = self._links.pop(effect.link, None)
        if line is not None:
            line.end(requests_arrive=self.requests_arrive_late)

    def _receive(self, line: Line) -> None:
        link = next(link for link, one in self._links.items() if one is line)
        rest = memoryview(line.answers.popleft())
        self._unanswered[line] -= 1
        while rest:
            buffer = self.core.network.get_buffer(link)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._handle(self.core.network.received(link, count, self.now_ms))
        self._poll()

    def _notice_ended(self) -> None:
        for link, line in list(self._links.items()):
            if not line.is_open or (line.hung_up and not line.answers):
                line.end(requests_arrive=False)
                del self._links[link]
                self._handle(self.core.network.lost(link, "connection reset", self.now_ms))
        self._poll()

    def _handle(self, events: list[Any]) -> None:
        for event in events:
            self.core.handle(event, self.now_ms)

    def _learn_topic(self, first_position: int) -> None:
        self.core.awaited_topics[TOPIC] = 1
        self._poll()
        self.pass_time(100, healthy=True)
        del self.core.awaited_topics[TOPIC]
        for queue in self.accumulator.topics[TOPIC].queues:
            queue.next_position = first_position

    # --- what the core reports ----------------------------------------------------------------------------------------

    def _settled(self, batch: ProducerBatch) -> None:
        """As the shells do: the callbacks of a batch, in order."""
        batch.run_callbacks(self._raised)

    def _raised(self) -> None:
        raise BrokenPromiseError("a callback of the test itself raised")

    def _reported(self, sent: Sent, metadata: Any, error: Exception | None) -> None:
        if sent.is_reported:
            raise BrokenPromiseError(f"{sent.partition}#{sent.number} was reported twice")
        sent.is_reported = True
        sent.error = error
        sent.offset = -1 if metadata is None else metadata.offset
        self.reports[sent.partition].append(sent.number)

    def _cross_check_futures(self) -> None:
        for sent in self.sent:
            if sent.is_reported:
                assert sent.future is not None
                assert sent.future.done()
                assert sent.future.exception(0) is sent.error
                if sent.error is None:
                    assert sent.future.result(0)[:3] == (*sent.partition, sent.offset)


class WatchedIdempotence(Idempotence):
    """Tells when the epoch moves on too early."""

    def __init__(self, world: ProducerWorld) -> None:
        super().__init__()
        self._world = world

    def bump(self, queues: Iterable[PartitionQueue]) -> bool:
        queues = list(queues)
        in_flight = [batch for queue in queues for batch in queue.unsettled if batch.is_in_flight]
        if not super().bump(queues):
            return False
        if in_flight:
            raise BrokenPromiseError(f"the epoch was bumped while {in_flight} were in flight")
        no_unreported_record_is_stored(self._world)
        return True


def _network_settings(config: ProducerConfig) -> NetworkSettings:
    return NetworkSettings(
        client_id=config.client_id,
        max_in_flight=config.max_in_flight_requests_per_connection,
        request_timeout_ms=config.request_timeout_ms,
        socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_answer_bytes=1 << 20,
    )


# --- promises -------------------------------------------------------------------------------------------------------


def stored_numbers(world: ProducerWorld, partition: TopicPartition) -> list[int]:
    """The numbers of a partition's records in the order of the log."""
    return [int(record.partition(b"#")[2].rstrip(b".")) for record in world.cluster.partitions[partition].records]


def doubled(world: ProducerWorld) -> list[str]:
    return [
        f"{partition}#{number} is stored {count} times"
        for partition in world.cluster.partitions
        for number, count in Counter(stored_numbers(world, partition)).items()
        if count > 1
    ]


def reordered(world: ProducerWorld) -> list[str]:
    """By the first copy of each record that was reported as delivered."""
    found = []
    for partition in world.cluster.partitions:
        delivered = {sent.number for sent in world.sent if sent.partition == partition and sent.is_delivered}
        firsts = [number for number in dict.fromkeys(stored_numbers(world, partition)) if number in delivered]
        found += [
            f"{partition}#{later} is stored before #{number}" for later, number in pairwise(firsts) if later > number
        ]
    return found


def lost(world: ProducerWorld) -> list[str]:
    stored = {(partition, record) for partition, _, record in world.cluster.stored()}
    return [
        f"{sent.partition}#{sent.number} was delivered and is not stored"
        for sent in world.sent
        if sent.is_delivered and (sent.partition, sent.value) not in stored
    ]


def no_record_is_stored_twice(world: ProducerWorld) -> None:
    _promise(doubled(world))


def delivered_records_are_where_they_were_reported(world: ProducerWorld) -> None:
    wrong = lost(world)
    for sent in world.sent:
        if sent.is_delivered and sent.offset >= 0:
            records = world.cluster.partitions[sent.partition].records
            there = records[sent.offset] if sent.offset < len(records) else None
            if there != sent.value:
                wrong.append(f"{sent.partition}#{sent.number} was reported at offset {sent.offset}, where {there!r} is")
    _promise(wrong)


def stored_records_are_in_the_order_of_send(world: ProducerWorld) -> None:
    """All of them, also those that were reported as failed with an unknown fate."""
    _promise(
        [
            f"{partition}: #{earlier} is stored before #{later}"
            for partition in world.cluster.partitions
            for earlier, later in pairwise(stored_numbers(world, partition))
            if earlier >= later
        ]
    )


def records_reported_as_not_written_are_not_stored(world: ProducerWorld) -> None:
    stored = {(partition, record) for partition, _, record in world.cluster.stored()}
    _promise(
        [
            f"{sent.partition}#{sent.number} is stored, but was reported as not written: {sent.error!r}"
            for sent in world.sent
            if sent.is_surely_unwritten and (sent.partition, sent.value) in stored
        ]
    )


def no_unreported_record_is_stored(world: ProducerWorld) -> None:
    """At a bump: what is in the log and not yet reported would be stored again under a new number."""
    stored = {(partition, record) for partition, _, record in world.cluster.stored()}
    _promise(
        [
            f"{sent.partition}#{sent.number} is stored, not reported, and about to be numbered again"
            for sent in world.sent
            if not sent.is_reported and (sent.partition, sent.value) in stored
        ]
    )


def every_record_is_answered(world: ProducerWorld) -> None:
    _promise([f"{sent.partition}#{sent.number} has no answer" for sent in world.sent if not sent.is_reported])


def no_record_waits_too_long(world: ProducerWorld) -> None:
    longest_ms = world.config.delivery_timeout_ms + 2 * EXPIRY_PERIOD_MS
    _promise(
        [
            f"{sent.partition}#{sent.number} has waited for {world.now_ms - sent.sent_ms} ms"
            for sent in world.sent
            if not sent.is_reported and world.now_ms - sent.sent_ms > longest_ms
        ]
    )


def reports_are_in_the_order_of_send(world: ProducerWorld) -> None:
    _promise(
        [
            f"{partition}#{later} was reported before #{number}"
            for partition, numbers in world.reports.items()
            for later, number in pairwise(numbers)
            if later > number
        ]
    )


def memory_is_given_back(world: ProducerWorld) -> None:
    accumulator = world.accumulator
    found = [f"{accumulator.used_bytes} bytes are still taken"] if accumulator.used_bytes else []
    for queue in accumulator.topics[TOPIC].queues:
        if queue.queued_bytes or queue.batches or queue.unsettled:
            found.append(f"{queue} counts {queue.queued_bytes} bytes, {list(queue.batches)}, {queue.unsettled}")
    if accumulator.incomplete:
        found.append(f"{list(accumulator.incomplete)} are not complete")
    _promise(found)


def the_client_never_misbehaves(world: ProducerWorld) -> None:
    _promise(world.cluster.complaints)
    limit = world.config.max_in_flight_requests_per_connection
    if world.most_in_flight > limit:
        _promise([f"{world.most_in_flight} requests were in flight on one connection; {limit} are allowed"])


def _promise(violations: list[str]) -> None:
    if violations:
        raise BrokenPromiseError("; ".join(violations[:5]))


def everyone_s_promises() -> Iterator[Callable[[ProducerWorld], None]]:
    """Whatever the settings."""
    yield every_record_is_answered
    yield memory_is_given_back
    yield the_client_never_misbehaves


def idempotent_promises() -> Iterator[Callable[[ProducerWorld], None]]:
    yield from everyone_s_promises()
    yield no_record_is_stored_twice
    yield delivered_records_are_where_they_were_reported
    yield stored_records_are_in_the_order_of_send
    yield records_reported_as_not_written_are_not_stored
    yield reports_are_in_the_order_of_send
