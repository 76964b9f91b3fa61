"""The consumer's real fetcher and network in a world of its own: a model cluster, a reader, and a fake clock.

The world plays the core above (metadata, nothing else), the driver and the reader. Nothing moves unless a method here
is called, and every method takes plain numbers, so that Hypothesis can play it.

What is checked with every record: it is the one at the reader's position, none left out, none twice, and the log had it
there. What is checked with every step: the bounds. The promises at the end are functions with names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.client.cluster import Cluster
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.driven import advance, sleep_ms
from oncelog.client.fetch.fetcher import Fetcher
from oncelog.client.fetch.inbox import FetchedData, Inbox
from oncelog.client.fetch.partitions import MAX_WAITING, PartitionState, Stage
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Close, Connect, Event, Write
from oncelog.client.network_settings import NetworkSettings
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.sim.model_reading import FIRST_PORT, ModelLog, ReadCluster, ReadLine
from tests.support.batches import batch_records, read_batches

TOPIC = "t"
PARTITIONS = 3
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_bytes": 2_000,
    "max_partition_fetch_bytes": 600,
    "fetch_queue_max_bytes": 4_000,
    "fetch_max_wait_ms": 50,
    "request_timeout_ms": 400,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
    "metadata_max_age_ms": 1_000,
}
"""Everything small, so that a few batches fill requests and memory, and a few seconds are a long time."""

MAX_IDLE_POLLS = 50
"""So often in a row the fetcher may ask to be polled again at once without having done anything."""
MAX_BATCH_BYTES = 1_000
"""The largest batch that `append` makes."""


class BrokenPromiseError(AssertionError):
    """The fetcher did what it must never do."""


class ReadingCore:
    """The least that a consumer's core does: metadata for the fetcher."""

    def __init__(self, config: ConsumerConfig, inbox: Inbox, jitter: Callable[[], float]) -> None:
        self.network = Network(network_settings(config), jitter)
        self.metadata = MetadataCache(
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_age_ms,
            retry_backoff_ms=config.retry_backoff_ms,
        )
        self.cluster = Cluster(self.network, self.metadata, config.bootstrap_servers)
        self.fetcher = Fetcher(config, self.network, self.metadata, inbox, jitter=jitter, wall_ms=lambda: self.wall_ms)
        self.wall_ms = 0
        self.is_finished = False

    def poll(self, now_ms: int) -> int:
        for topic in {partition.topic for partition in self.fetcher.states}:
            self.metadata.want(topic, now_ms)
        self.cluster.refresh(now_ms)
        wait_ms = self.fetcher.poll(now_ms)
        due_ms = self.cluster.due_ms()
        return wait_ms if due_ms is None else max(0, min(wait_ms, due_ms - now_ms))

    def handle(self, event: Event, now_ms: int) -> None:
        if event.tag == ApiKey.METADATA:
            self.cluster.arrived(event, now_ms)
        else:
            assert self.fetcher.handle(event, now_ms)

    def failed(self, error: BaseException) -> None:
        raise error


@dataclass(eq=False)
class Reading:
    """What the user got of one partition since its position was last set."""

    seek_count: int
    start: int | None
    values: list[bytes] = field(default_factory=list)


class ConsumerWorld:
    def __init__(
        self,
        *,
        partitions: int = PARTITIONS,
        jitter: Callable[[], float] = lambda: 0.5,
        model: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.cluster = ReadCluster({TOPIC: partitions}, **(model or {}))
        self.config = ConsumerConfig.of(f"node0:{FIRST_PORT},node1:{FIRST_PORT + 1}", **{**SETTINGS, **settings})
        self.now_ms = 1_000
        self.wakes = 0
        self.inbox = Inbox(self.config.fetch_queue_max_bytes, self._woken)
        self.core = ReadingCore(self.config, self.inbox, jitter)
        self.fetcher = self.core.fetcher
        self.errors: list[Exception] = []
        self.readings: dict[TopicPartition, Reading] = {}
        self.most_buffered = 0
        self.history: defaultdict[tuple[TopicPartition, int], set[bytes]] = defaultdict(set)
        self._links: dict[int, ReadLine] = {}
        self._open: FetchedData | None = None
        self._next_value = 0
        self._sleep_ms = 0
        self._idle_polls = 0
        self._is_woken = False

    # --- what the user does -----------------------------------------------------------------------------------------

    def assign(self, *indexes: int) -> None:
        self.fetcher.assign([TopicPartition(TOPIC, index) for index in indexes])
        self.poll()

    def start(self, *indexes: int) -> None:
        """Assigned, and at the position that the policy gives, with nothing fetched yet beyond what that brings."""
        self.assign(*indexes)
        for index in indexes:
            self.reset(index)

    def seek(self, index: int, offset: int, leader_epoch: int = -1) -> None:
        """What is read from here on is compared with the log by itself: who goes to an offset without an epoch, even to
        the one where the reader stands, does not ask whether the log before it is still the same."""
        name = TopicPartition(TOPIC, index)
        self.fetcher.seek(name, offset, leader_epoch)
        self.readings.pop(name, None)
        self.poll()

    def reset(self, index: int, spec: int | None = None) -> None:
        self.fetcher.reset(TopicPartition(TOPIC, index), spec)
        self.poll()

    def pause(self, index: int) -> None:
        self.fetcher.pause([TopicPartition(TOPIC, index)])
        self.poll()

    def resume(self, index: int) -> None:
        self.fetcher.resume([TopicPartition(TOPIC, index)])
        self.poll()

    def state(self, index: int) -> PartitionState:
        return self.fetcher.states[TopicPartition(TOPIC, index)]

    def log(self, index: int) -> ModelLog:
        return self.cluster.logs[TopicPartition(TOPIC, index)]

    def read(self, max_records: int = 1 << 30) -> list[tuple[TopicPartition, int, bytes]]:
        """What a user's poll returns."""
        records: list[tuple[TopicPartition, int, bytes]] = []
        while len(records) < max_records:
            if self._open is None or not self._open.is_current or self._open.state.is_paused:
                self._turn_over()
            if self._open is None:
                break
            taken = self._read_on(self._open, max_records - len(records))
            records += taken
        if self._is_woken:
            self.poll()
        self._follow_jumps()
        return records

    def _turn_over(self) -> None:
        if self._open is not None and self._open.is_current:
            self.inbox.put_back_front(self._open)
        self._open = self.inbox.take()

    def _read_on(self, fetched: FetchedData, max_records: int) -> list[tuple[TopicPartition, int, bytes]]:
        self._follow_jumps()
        state = fetched.state
        assert state.position is not None
        batches = list(read_batches(bytes(fetched.data)))
        stored = [one for batch in batches for one in batch_records(batch) if one.offset >= state.position]
        taken = stored[:max_records]
        for one in taken:
            self._check_record(state, one.offset, one.value or b"")
            state.position = one.offset + 1
        if len(taken) == len(stored):
            last = batches[-1]
            state.position = max(state.position, last.base_offset + last.last_offset_delta + 1)
            state.position_epoch = last.leader_epoch
            self._open = None
        return [(state.partition, one.offset, one.value or b"") for one in taken]

    def _check_record(self, state: PartitionState, offset: int, value: bytes) -> None:
        if offset != state.position:
            raise BrokenPromiseError(f"{state.partition}: {offset} came where {state.position} is next")
        if value not in self.history[state.partition, offset]:
            raise BrokenPromiseError(f"{state.partition}: {value!r} never was at {offset}")
        self.readings[state.partition].values.append(value)

    def _follow_jumps(self) -> None:
        """Positions that were set anew since we last looked. A rewind is none: the reader's position stays."""
        for name, state in self.fetcher.states.items():
            reading = self.readings.get(name)
            if reading is not None and reading.seek_count == state.seek_count:
                continue
            stays = reading is not None and reading.start is not None
            if stays and state.position == reading.start + len(reading.values):  # type: ignore[union-attr, operator]
                reading.seek_count = state.seek_count  # type: ignore[union-attr]
            else:
                self.readings[name] = Reading(state.seek_count, state.position)
        for name in [name for name in self.readings if name not in self.fetcher.states]:
            del self.readings[name]

    # --- what the cluster does --------------------------------------------------------------------------------------

    def append(self, index: int, record_count: int = 1, value_bytes: int = 40) -> None:
        name = TopicPartition(TOPIC, index)
        log = self.log(index)
        values = []
        for offset in range(log.end_offset, log.end_offset + record_count):
            value = f"{name}:{self._next_value}".encode().ljust(value_bytes, b".")
            self._next_value += 1
            self.history[name, offset].add(value)
            values.append(value)
        log.append(*values)

    @property
    def lines(self) -> list[ReadLine]:
        return [line for line in self._links.values() if line.is_open]

    def serve(self, index: int) -> None:
        if self.lines:
            line = self.lines[index % len(self.lines)]
            line.serve(self.now_ms, self.config.fetch_max_wait_ms)

    def answer(self, index: int) -> None:
        lines = [line for line in self.lines if line.answers]
        if lines:
            self._receive(lines[index % len(lines)])

    def settle_down(self) -> None:
        """Everything under way arrives, and all that follows from it without time passing."""
        for _ in range(2_000):
            served = [line.serve(self.now_ms, self.config.fetch_max_wait_ms) for line in self.lines]
            answered = [line for line in self.lines if line.answers]
            if not any(served) and not answered:
                return
            for line in answered:
                if line.is_open and line.answers:
                    self._receive(line)
        raise BrokenPromiseError("requests and answers go round in circles without any time passing")

    def cut(self, index: int) -> None:
        """A connection breaks, with all that is on it."""
        if self.lines:
            self.lines[index % len(self.lines)].end()
            self._notice_ended()

    def garble(self, index: int) -> None:
        """An answer arrives damaged."""
        lines = [line for line in self.lines if line.answers]
        if lines:
            answers = lines[index % len(lines)].answers
            answers[0] = answers[0][:8] + b"\xff" * (len(answers[0]) - 8)
            self.answer(index)

    def stop_node(self, node_id: int) -> None:
        self.cluster.stopped.add(node_id)
        for line in self.lines:
            if line.node_id == node_id:
                line.end()
        self._notice_ended()

    # --- time -------------------------------------------------------------------------------------------------------

    def pass_time(self, duration_ms: int, *, healthy: bool = True, reading: bool = True) -> None:
        """Let time pass; `healthy`: with a cluster that answers at once; `reading`: with a user who reads at once."""
        end_ms = self.now_ms + duration_ms
        while True:
            if healthy:
                self.settle_down()
            if reading and self.read():
                continue
            step_ms = min(self._sleep_ms, self._waiting_ms(healthy), end_ms - self.now_ms)
            if step_ms == 0 and self.now_ms == end_ms:
                return
            self._idle_polls = 0 if step_ms else self._idle_polls + 1
            if self._idle_polls > MAX_IDLE_POLLS:
                raise BrokenPromiseError(f"the fetcher spins: polled at once {MAX_IDLE_POLLS} times in a row")
            self.now_ms += step_ms
            self.poll()

    def _waiting_ms(self, healthy: bool) -> int:
        """Until a broker answers a fetch that found no data."""
        since = [line.waits_since_ms for line in self.lines if line.waits_since_ms is not None] if healthy else []
        return min((one + self.config.fetch_max_wait_ms - self.now_ms for one in since), default=1 << 30)

    def heal(self) -> None:
        self.cluster.stopped.clear()
        self.cluster.forgive()
        self.cluster.publish()

    def finish(self) -> None:
        """The trouble is over: everything that is assigned and not held is read to its end."""
        self.heal()
        for state in self.fetcher.states.values():
            self.fetcher.resume([state.partition])
            if state.stage in (Stage.UNPOSITIONED, Stage.HELD):
                self.fetcher.reset(state.partition, -2)
        self.poll()
        self.pass_time(3_000)
        everything_is_read(self)

    # --- the driver ---------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        self._is_woken = False
        has_news = True
        while has_news:
            asked_ms = advance(self.core, self.now_ms)
            has_news = False
            for effect in self.core.network.take_effects():
                if isinstance(effect, Connect):
                    self._connect(effect)
                    has_news = True
                elif isinstance(effect, Write):
                    self._links[effect.link].write(b"".join(bytes(buffer) for buffer in effect.buffers))
                else:
                    self._close(effect)
            self._sleep_ms = sleep_ms(self.core.network, asked_ms, self.now_ms)
        self.errors += self.fetcher.take_errors()
        self._follow_jumps()
        bounds_hold(self)

    def _woken(self) -> None:
        self.wakes += 1
        self._is_woken = True

    def _connect(self, effect: Connect) -> None:
        node_id = effect.port - FIRST_PORT
        if node_id in self.cluster.stopped:
            self._handle(self.core.network.lost(effect.link, "connection refused", self.now_ms))
            return
        self._links[effect.link] = ReadLine(self.cluster, node_id)
        self.core.network.opened(effect.link, self.now_ms)

    def _close(self, effect: Close) -> None:
        line = self._links.pop(effect.link, None)
        if line is not None:
            line.end()

    def _receive(self, line: ReadLine) -> None:
        link = next(link for link, one in self._links.items() if one is line)
        rest = memoryview(line.answers.popleft())
        while rest:
            buffer = self.core.network.get_buffer(link)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._handle(self.core.network.received(link, count, self.now_ms))
        self.poll()

    def _notice_ended(self) -> None:
        for link, line in list(self._links.items()):
            if not line.is_open:
                del self._links[link]
                self._handle(self.core.network.lost(link, "connection reset", self.now_ms))
        self.poll()

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self.core.handle(event, self.now_ms)


def network_settings(config: ConsumerConfig) -> NetworkSettings:
    return NetworkSettings(
        client_id="reader",
        max_in_flight=100,
        request_timeout_ms=config.request_timeout_ms,
        socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_answer_bytes=1 << 20,
    )


# --- promises -----------------------------------------------------------------------------------------------------


def bounds_hold(world: ConsumerWorld) -> None:
    """Only one batch for each broker that is too large by itself may come on top, and what is being read meanwhile."""
    world.most_buffered = max(world.most_buffered, world.inbox.buffered_bytes)
    allowed = world.inbox.max_bytes + len(world.cluster.nodes) * MAX_BATCH_BYTES
    if world.inbox.buffered_bytes > allowed:
        raise BrokenPromiseError(f"{world.inbox.buffered_bytes} bytes are buffered, {allowed} are allowed")
    for state in world.fetcher.states.values():
        if state.waiting > MAX_WAITING + 1:  # one more if the reader puts back what it had begun
            raise BrokenPromiseError(f"{state.waiting} answers of {state.partition} wait")


def everything_is_read(world: ConsumerWorld) -> None:
    """From where each position was last set: what the log has, all of it, in its order."""
    for name, state in world.fetcher.states.items():
        log = world.cluster.logs[name]
        if state.position != log.end_offset:
            raise BrokenPromiseError(f"{name} is at {state.position}, not at the log's end: {state}")
        reading = world.readings[name]
        assert reading.start is not None
        start = max(reading.start, log.start_offset)  # what was deleted since cannot be compared
        read = reading.values[start - reading.start :]
        if read != log.values(start):
            raise BrokenPromiseError(f"{name} from {start}: {read} were read of {log.values(start)}")
