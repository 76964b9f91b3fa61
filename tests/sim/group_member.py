"""One consumer of a simulated group: the whole of it but its shell, and the user who holds it.

The user is a generator, as the calls of a consumer are: it yields what takes time. It reads in one of several styles,
and tells the world what it was handed and what it is done with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.client.consumer_calls.calls import ConsumerCalls
from oncelog.client.consumer_calls.steps import Ask, AwaitNews, Callback, Interceptors, Listener
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_errors import ConsumerTimedOut
from oncelog.client.consumer_reader import Reader
from oncelog.client.driven import advance, sleep_ms
from oncelog.client.fetch.inbox import Inbox
from oncelog.client.network import Network
from oncelog.client.network_events import Close, Connect, Event, Write
from oncelog.consumer.face import answer_of, cancel
from oncelog.errors import OncelogError
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from tests.sim.consumer_world import network_settings
from tests.sim.model_group import GROUP, GroupLine
from tests.sim.model_reading import FIRST_PORT

if TYPE_CHECKING:
    from tests.sim.group_world import GroupWorld

CLOSE_MS = 5_000
COMMIT_MS = 3_000
MAX_SPINS = 1_000
"""So often in a row a user may be resumed without any time passing."""

SETTINGS: dict[str, Any] = {
    "group_id": GROUP,
    "auto_offset_reset": "earliest",
    "fetch_max_bytes": 4_000,
    "max_partition_fetch_bytes": 600,
    "fetch_queue_max_bytes": 8_000,
    "fetch_max_wait_ms": 100,
    "max_poll_records": 20,
    "max_poll_interval_ms": 5_000,
    "auto_commit_interval_ms": 200,
    "request_timeout_ms": 1_000,
    "default_api_timeout_ms": 4_000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "metadata_max_age_ms": 1_000,
}
CLASSIC: dict[str, Any] = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 300}


class Sleep(NamedTuple):
    """The user is busy with what it was handed."""

    ms: int


Program = Generator[Any, Any, None]
Outcome = tuple[Any, BaseException | None]


class Member:
    def __init__(self, world: GroupWorld, name: str, style: str, settings: dict[str, Any]) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_leaving = False
        self.frozen_until_ms = 0
        self.errors: list[Exception] = []
        classic = {} if settings.get("group_protocol") == "consumer" else CLASSIC
        given = {**SETTINGS, **classic, "enable_auto_commit": style != "manual", **settings}
        self.config = ConsumerConfig.of(f"node0:{FIRST_PORT},node1:{FIRST_PORT + 1}", client_id=name, **given)
        chance = world.chance.random
        network = Network(network_settings(self.config), chance)
        self._inbox = inbox = Inbox(self.config.fetch_queue_max_bytes, self._wake)
        self.core = ConsumerCore(
            self.config,
            network,
            inbox,
            jitter=chance,
            new_id=lambda: f"uuid-{name}",
            wall_ms=self._clock,
            on_news=self._ring,
        )
        counters = ConsumerCounters()
        reader = Reader(inbox, self.config, lambda _: None, lambda _: None, counters)
        self.calls = ConsumerCalls(
            self.config,
            self.core,
            reader,
            Interceptors(),
            counters,
            lambda _: None,
            self._clock,
            self._wake,
            self,
        )
        self._lines: dict[int, GroupLine] = {}
        self._greeted: set[int] = set()
        self._stack: list[Program] = [self._program(style)]
        self._outcome: Callable[[], Outcome | None] = lambda: (None, None)
        """How the step ended that the user waits for; None while it has not."""
        self._in_hand: list[ConsumerRecord] = []
        self._until_ms: int | None = None
        """When it waits no longer."""
        self._run_ms = self._user_ms = -1
        self._spins = (0, 0)

    def __repr__(self) -> str:
        return f"{self.name} {self.core.identity} {sorted(self.core.assignment)}"

    def _clock(self) -> int:
        return self.world.now_ms

    @property
    def is_frozen(self) -> bool:
        return self.world.now_ms < self.frozen_until_ms

    @property
    def buffered_bytes(self) -> int:
        return self._inbox.buffered_bytes

    # --- what the user does -----------------------------------------------------------------------------------------

    def _program(self, style: str) -> Program:
        listener = Listener(
            on_assigned=lambda _, partitions: self.world.assigned(self, partitions),
            on_revoked=lambda _, partitions: self._revoked(partitions, style),
            on_lost=lambda _, partitions: self.world.let_go(self, partitions),
        )
        yield from self.calls.selection.subscribe(frozenset([self.world.topic]), listener)
        read = {"auto": self._poll_on, "manual": self._poll_and_commit, "iterating": self._iterate}[style]
        while not self.is_leaving:
            try:
                yield from read()
            except OncelogError as error:
                self.errors.append(error)
                yield Sleep(1)
        self._done()
        yield from self.calls.close(CLOSE_MS, is_failing=False)
        self.world.let_go(self, None)
        self.die()

    def _poll_on(self) -> Program:
        chance = self.world.chance
        self._done()
        records = yield from self.calls.reading.poll(chance.choice((0, 20, 300)), chance.choice((1, 5, None)))
        self._take(records)
        yield Sleep(chance.choice((0, 1, 10, 60)))

    def _poll_and_commit(self) -> Program:
        """What is handed out is done with before anything else is called, and committed now and then."""
        yield from self._poll_on()
        self._done()
        chance = self.world.chance.random()
        if chance < 0.2:
            yield from self.calls.commits.commit(None, COMMIT_MS)
        elif chance < 0.4:
            self.calls.commits.commit_async(None, None)

    def _iterate(self) -> Program:
        """Some chunks, as `for record in consumer` has them."""
        self._done()
        for record in (yield from self.calls.reading.next_chunk()):
            self._done()
            self.core.in_hand = record
            self._take([record])
            yield Sleep(self.world.chance.choice((0, 0, 0, 1, 10)))
            if self.is_leaving or self.calls.progress.is_interrupted or self.core.outbox:
                return
        self._done()
        self.calls.progress.chunk_ended()

    def _take(self, records: list[ConsumerRecord]) -> None:
        self._in_hand = records
        self.world.handed_out(self, records)

    def _done(self) -> None:
        records, self._in_hand = self._in_hand, []
        self.world.done_with(records)

    def _revoked(self, partitions: list[TopicPartition], style: str) -> Program:
        if style == "manual":
            try:
                yield from self.calls.commits.commit(None, COMMIT_MS)
            except OncelogError as error:
                self.errors.append(error)
        self.world.let_go(self, partitions)

    # --- the user's thread ------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        self._user_in(0)

    def _user_in(self, wait_ms: int) -> None:
        at_ms = self.world.now_ms + wait_ms
        if self._user_ms < self.world.now_ms or at_ms < self._user_ms:
            self._user_ms = at_ms
            self.world.at(at_ms, lambda: self._resume() if self._user_ms == at_ms else None)

    def _resume(self) -> None:
        self._user_ms = -1
        if self.is_frozen:
            self._user_in(self.frozen_until_ms - self.world.now_ms)
        while self.is_alive and not self.is_frozen and (outcome := self._outcome()) is not None:
            self._check_spinning()
            result, error = outcome
            try:
                step = self._stack[-1].throw(error) if error is not None else self._stack[-1].send(result)
            except StopIteration as end:
                self._pop((end.value, None))
            except Exception as raised:
                if len(self._stack) == 1:
                    raise
                self._pop((None, raised))
            else:
                self._begin(step)
        if self.is_alive and not self.is_frozen and self._until_ms is not None:
            self._user_in(max(0, self._until_ms - self.world.now_ms))

    def _pop(self, outcome: Outcome) -> None:
        self._stack.pop()
        self._outcome = (lambda: outcome) if self._stack else (lambda: None)

    def _check_spinning(self) -> None:
        when, spins = self._spins
        self._spins = (self.world.now_ms, spins + 1 if when == self.world.now_ms else 0)
        assert spins < MAX_SPINS, f"{self} goes round in circles"

    def _begin(self, step: Ask | AwaitNews | Callback | Sleep) -> None:
        self._until_ms = None
        if isinstance(step, Callback):
            self._call(step)
        elif isinstance(step, Ask):
            self._ask(step)
        elif isinstance(step, Sleep):
            until_ms = self.world.now_ms + step.ms
            self._outcome = lambda: (None, None) if self.world.now_ms >= until_ms else None
            self._until_ms = until_ms
        else:
            self._outcome = lambda: (None, None) if self._has_news(step) else None
            self._until_ms = step.deadline_ms

    def _has_news(self, step: AwaitNews) -> bool:
        is_late = step.deadline_ms is not None and self.world.now_ms >= step.deadline_ms
        return is_late or self.core.arrivals != step.seen

    def _call(self, step: Callback) -> None:
        found = step.function(*step.arguments)
        self._outcome = lambda: (None, None)
        if isinstance(found, GeneratorType):
            self._stack.append(found)

    def _ask(self, ask: Ask) -> None:
        answers: list[Any] = []
        pending: list[Any] = []

        def done(answer: Any) -> None:
            answers.append(answer)
            self._ring()

        self.core.submit(lambda now_ms: pending.append(ask.command(now_ms, done)))
        self._wake()
        timeout_ms = self.config.default_api_timeout_ms if ask.timeout_ms is None else ask.timeout_ms
        deadline_ms = self._until_ms = self.world.now_ms + timeout_ms

        def outcome() -> Outcome | None:
            if answers or self.core.fatal is not None:
                try:
                    return answer_of(answers, self.core.fatal), None
                except Exception as error:
                    return None, error
            if self.world.now_ms < deadline_ms:
                return None
            self.core.submit(lambda _: cancel(pending))
            return None, ConsumerTimedOut("no answer")

        self._outcome = outcome

    # --- the driver's thread ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._wake()
        self._ring()

    def _wake(self) -> None:
        self._run_in(0)

    def _run_in(self, wait_ms: int) -> None:
        at_ms = self.world.now_ms + wait_ms
        if self._run_ms < self.world.now_ms or at_ms < self._run_ms:
            self._run_ms = at_ms
            self.world.at(at_ms, lambda: self._run() if self._run_ms == at_ms else None)

    def _run(self) -> None:
        self._run_ms = -1
        if not self.is_alive:
            return
        if self.is_frozen:
            self._run_in(self.frozen_until_ms - self.world.now_ms)
            return
        asked_ms = advance(self.core, self.world.now_ms)
        effects = self.core.network.take_effects()
        for effect in effects:
            self._perform(effect)
        self._run_in(1 if effects else max(1, sleep_ms(self.core.network, asked_ms, self.world.now_ms)))

    def _perform(self, effect: Connect | Write | Close) -> None:
        if isinstance(effect, Connect):
            self._lines[effect.link] = self.world.cluster.connect(effect.port - FIRST_PORT)
            self.world.soon(partial(self._opened, effect.link))
        elif isinstance(effect, Write):
            data = b"".join(bytes(buffer) for buffer in effect.buffers)
            self.world.soon(partial(self._arrive, effect.link, data))
        else:
            line = self._lines.pop(effect.link, None)
            if line is not None:
                self.world.cluster.hang_up(line)

    def _opened(self, link: int) -> None:
        if link in self._lines and self.is_alive:
            self.core.network.opened(link, self.world.now_ms)
            self._run()

    def _arrive(self, link: int, data: bytes) -> None:
        line = self._lines.get(link)
        if line is not None and line.is_open:
            line.write(data)
            self.world.serve(line)

    def receive(self) -> None:
        """Answers that the brokers gave meanwhile, and connections that they closed, are on their way."""
        for link, line in list(self._lines.items()):
            while line.answers:
                self.world.soon(partial(self._answered, link, line.answers.popleft()))
            if not line.is_open:
                self.world.soon(partial(self._lost, link))

    def _answered(self, link: int, data: bytes) -> None:
        if link not in self._lines or not self.is_alive:
            return
        if self.is_frozen:
            self.world.at(self.frozen_until_ms, lambda: self._answered(link, data))
            return
        if link in self._greeted:  # the first tells what versions are spoken here, for as long as the connection lasts
            data = self.world.garble(data)
        self._greeted.add(link)
        rest = memoryview(data)
        while rest and link in self._lines:
            buffer = self.core.network.get_buffer(link)
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            self._handle(self.core.network.received(link, size, self.world.now_ms))
            for effect in self.core.network.take_effects():  # it may hang up in the middle
                self._perform(effect)
        self._run()

    def _lost(self, link: int) -> None:
        if self._lines.pop(link, None) is not None and self.is_alive:
            self._handle(self.core.network.lost(link, "reset", self.world.now_ms))
            self._run()

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self.core.handle(event, self.world.now_ms)

    def cut(self) -> None:
        """All its connections break, with all that is on them."""
        for link, line in list(self._lines.items()):
            self.world.cluster.hang_up(line)
            self._lost(link)

    def die(self) -> None:
        self.is_alive = False
        for line in self._lines.values():
            self.world.cluster.hang_up(line)
        self._lines.clear()
