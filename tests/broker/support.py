"""What the broker's tests share: waiting for a condition, reading the metrics page, and a broker without a socket."""

from __future__ import annotations

import errno
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from oncelog.broker.config import BrokerConfig, Endpoint
from oncelog.broker.dispatch import Dispatcher
from oncelog.broker.fetch_view import FetchView
from oncelog.broker.group_commit import GroupCommit
from oncelog.broker.off_loop import OffLoop
from oncelog.broker.purgatory import FetchPurgatory
from oncelog.broker.request import Answer, Peer, Pending, Piecewise, Stepwise, Wait
from oncelog.broker.state import BrokerState
from oncelog.log.storage import Storage
from oncelog.types import TopicPartition
from oncelog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.frame import RequestHeader
from tests.controller.support import counting_ids
from tests.support.faulty_storage import Fault, FaultyFile, FaultyStorage
from tests.support.process import BrokerProcess
from tests.support.raw import Message, decode_response, encode_request

NOW_MS = 1_700_000_000_000
DEADLINE_S = 60.0
POLL_S = 0.005


def await_that(condition: Callable[[], bool], what: str, within_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(POLL_S)


class MetricsPage:
    """A broker's Prometheus page (it runs with `metrics.port=0`), read by Prometheus's own parser."""

    PURGATORY = "kafka_server_delayedoperationpurgatory_size"
    CONNECTIONS = "kafka_server_socketservermetrics_connection_count"

    def __init__(self, broker: BrokerProcess) -> None:
        ports = re.findall(r"metrics at http://[^:]+:(\d+)/metrics", broker.log)
        self.url = f"http://{broker.host}:{ports[-1]}/metrics"

    def families(self) -> dict[str, Metric]:
        with urllib.request.urlopen(self.url, timeout=DEADLINE_S) as answer:
            return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}

    def value(self, sample_name: str, **labels: str) -> float:
        """Of one sample; 0 if there is none with these labels yet."""
        samples = [sample for family in self.families().values() for sample in family.samples]
        found = [sample.value for sample in samples if sample.name == sample_name and sample.labels == labels]
        return sum(found)

    @property
    def waiting_fetches(self) -> int:
        return int(self.value(self.PURGATORY))

    @property
    def connections(self) -> int:
        return int(self.value(self.CONNECTIONS))


class FailingStorage(FaultyStorage):
    """A disk in memory whose next operation of a kind can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self._next: tuple[str, int, bool] | None = None

    def fail_next(self, what: str, error: int = errno.EIO, *, sticky: bool = False) -> None:
        """`sticky`: and everything after it, until `heal`."""
        self._next = (what, error, sticky)

    def _begin(self, what: str, path: str) -> Fault | None:
        if self._next is not None and self._next[0] == what:
            _, error, sticky = self._next
            self._next = None
            self.fail_at(self.operations, error, sticky=sticky)
        return super()._begin(what, path)


class ScarceStorage(FailingStorage):
    """Files in some folders cannot be opened."""

    missing: tuple[str, ...] = ()
    error = errno.EMFILE

    def open(self, path: str, create: bool = False) -> FaultyFile:
        if any(f"/{folder}/" in path for folder in self.missing):
            raise OSError(self.error, "Too many open files", path)
        return super().open(path, create)


class Threads:
    """Flushes that end when the test says so."""

    def __init__(self, turn: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._turn = turn
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any, Exception | None, int], None]]] = []

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any, Exception | None, int], None]) -> None:
        self.waiting.append((work, done))

    def run_all(self) -> None:
        while self.waiting:
            self.run_next()

    def run_next(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            result, error = work(), None
        except Exception as raised:
            result, error = None, raised
        with self._turn():
            done(result, error, NOW_MS)


class Alarms:
    """Timers that ring when the test lets time pass."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS
        self.due: list[tuple[int, Callable[[], None]]] = []

    def later(self, delay_ms: int, step: Callable[[], None]) -> Callable[[], None]:
        alarm = (self.time_ms + delay_ms, step)
        self.due.append(alarm)
        return lambda: self.due.remove(alarm) if alarm in self.due else None

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return self.time_ms

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn of the loop: what comes to be due at once, and not what comes of that, rings at its end."""
        before = list(self.due)
        yield
        for alarm in [alarm for alarm in self.due if alarm[0] <= self.time_ms and alarm not in before]:
            self.due.remove(alarm)
            alarm[1]()

    def pass_time(self, elapsed_ms: int) -> None:
        """Ring everything that is due on the way, in order."""
        end_ms = self.time_ms + elapsed_ms
        while self.due and min(self.due, key=lambda alarm: alarm[0])[0] <= end_ms:
            alarm = min(self.due, key=lambda alarm: alarm[0])
            self.due.remove(alarm)
            self.time_ms = max(self.time_ms, alarm[0])
            alarm[1]()
        self.time_ms = end_ms


class Later:
    """An answer that is still to come; `message` once it has."""

    def __init__(self, pending: Pending, decode: Callable[[Any], Message]) -> None:
        self.pending = pending
        self.message: Message | None = None

        def complete(chunks: Any) -> None:
            assert self.message is None, "answered twice"
            self.message = decode(chunks)

        pending.on_complete = complete


def made(dispatcher: Dispatcher, header: RequestHeader, answer: Answer, steps: list[object] | None = None) -> Answer:
    """The answer, made to its end if it comes in pieces or takes steps, each of which is noted. Nothing of it may have
    to be waited for."""
    while isinstance(answer, Piecewise | Stepwise):
        making = dispatcher.make(header, answer) if isinstance(answer, Piecewise) else answer
        while (result := making.step()) is None or isinstance(result, Wait):
            assert result is None or result.is_over, "a step waits for what does not come"
            if steps is not None:
                steps.append(making)
        answer = result
    return answer


def watching(purgatory: FetchPurgatory, *partitions: TopicPartition) -> FetchView:
    """A view of these, none of which is due."""
    view = FetchView(purgatory.unwatch)
    topics = [FetchTopic(topic, None, [FetchPartition(index, -1, 0, -1, -1, 1)]) for topic, index in partitions]
    view.replace(FetchRequest(0, 1, 1, 0, 0, -1, topics))
    for cached in view:
        purgatory.watch(cached, TopicPartition(cached.topic.name, cached.requested.index))
        view.at_end(cached, 0, 0)
    return view


def replace_method(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, replacement: Callable[..., Any]) -> None:
    """Of this object alone, whose class has slots for everything it may have."""
    kind = type(owner)
    original = getattr(kind, name)

    def chosen(self: object, *args: Any, **options: Any) -> Any:
        return replacement(*args, **options) if self is owner else original(self, *args, **options)

    monkeypatch.setattr(kind, name, chosen)


class Desk:
    """A broker without a server. Requests and answers are bytes, made and read by kio as everywhere in the tests."""

    def __init__(self, storage: Storage, data_dir: str, **settings: str) -> None:
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        config = BrokerConfig.from_settings({"log.dirs": data_dir, **texts})
        self.broker = BrokerState.open(config, storage, now_ms=NOW_MS, new_id=counting_ids())
        self.broker.endpoint = Endpoint("broker.example", 9092)
        self.alarms = Alarms()
        self.broker.timers = self.alarms
        self.threads = Threads(self.alarms.turn)
        self.broker.group_commit = GroupCommit(self.threads.run_in_thread)
        self.broker.off_loop = OffLoop(self.threads.run_in_thread)
        self.dispatcher = Dispatcher(self.broker)
        self.peer = Peer()

    def dispatch(self, api: str, version: int, message: Message, now_ms: int = NOW_MS) -> Answer:
        return self._dispatch(api, version, message, now_ms)[1]

    def ask(self, api: str, version: int, message: Message, now_ms: int = NOW_MS) -> Message:
        """The answer, which must come at once."""
        with self.alarms.turn():
            header, answer = self._dispatch(api, version, message, now_ms)
            answer = made(self.dispatcher, header, answer)
            assert isinstance(answer, dict | list), f"no answer yet: {answer}"
            return self._decode(api, version, self.dispatcher.frame(header, answer))

    def ask_later(self, api: str, version: int, message: Message, now_ms: int = NOW_MS) -> Later:
        """The answer, which must not come yet."""
        with self.alarms.turn():
            header, answer = self._dispatch(api, version, message, now_ms)
            assert isinstance(answer, Pending), f"answered at once: {answer}"
            return Later(answer, lambda chunks: self._decode(api, version, self.dispatcher.frame(header, chunks)))

    def _dispatch(self, api: str, version: int, message: Message, now_ms: int) -> tuple[Any, Answer]:
        frame = encode_request(api, version, message)[4:]
        return self.dispatcher.dispatch(memoryview(bytearray(frame)), now_ms, peer=self.peer)

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        (created,) = self.ask("create_topics", 7, {"topics": [wanted], "timeout": 1000})["topics"]
        assert created["error_code"] == 0, created

    def _decode(self, api: str, version: int, chunks: Any) -> Message:
        data = b"".join(chunk if isinstance(chunk, bytes) else chunk.read_all() for chunk in chunks)
        assert int.from_bytes(data[:4], "big") == len(data) - 4, "the size prefix lies"
        return decode_response(api, version, data[4:])[1]
