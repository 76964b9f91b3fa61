"""The blocking client under the command line and `Admin`: sockets, timeouts, who leads what, bounded retries.

A thin shell over `Connection`: one request at a time per broker, no threads. A request that may have been executed is
never repeated here unless the caller says that repeating is harmless.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from oncelog.client.config import ClientConfig
from oncelog.client.connection import Answer, Connection, ProtocolViolation
from oncelog.client.leaderless import without_leader
from oncelog.client.metadata import (
    NO_LEADER,
    ClusterMetadata,
    Node,
    PartitionMetadata,
    TopicMetadata,
    no_such_partition,
)
from oncelog.client.reachability import Reachability
from oncelog.client.settings import nearest
from oncelog.errors import (
    KafkaError,
    LeaderNotAvailable,
    OncelogError,
    UnknownTopicOrPartition,
    error_for_code,
)
from oncelog.printable import clause
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.primitives import MalformedMessage

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 2.0
"""How long a call is repeated before whoever waits is told why."""
SLOW_ANSWER_S = 5.0
"""How long a broker is silent before that is told."""


class BrokersUnreachable(OncelogError):
    """No broker answers at any of the addresses, and none has yet: the addresses are probably wrong."""


class ConnectionLost(OncelogError):
    """The connection broke before the answer came; the broker may or may not have executed the request."""


class NoAnswer(ConnectionLost):
    """The broker did not answer in time."""


class BlockingConnection:
    """One socket to one broker, versions agreed."""

    def __init__(self, host: str, port: int, config: ClientConfig, limit_s: float | None = None) -> None:
        """`limit_s` is what is left to whoever waits for it, if that is less than the settings allow."""
        self._name = f"{host}:{port}"
        self._config = config
        self._core = Connection(config.client_id)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        self._socket = _connect(host, port, _left(deadline, config.socket_connection_setup_timeout_ms / 1000))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._agree_on_versions(_left(deadline, config.request_timeout_ms / 1000))
        except BaseException:
            self.close()
            raise

    @property
    def features(self) -> dict[str, int]:
        assert self._core.negotiated is not None
        return dict(self._core.negotiated.features)

    def version_of(self, api_key: ApiKey, max_version: int | None = None) -> int:
        return self._core.version_of(api_key, max_version)

    def request(
        self, api_key: ApiKey, body: Any, *, max_version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """The answer's body. Raises ConnectionLost."""
        (answer,) = self.request_all(api_key, [body], max_version=max_version, timeout_ms=timeout_ms)
        return answer

    def request_all(
        self, api_key: ApiKey, bodies: Iterable[Any], *, max_version: int | None = None, timeout_ms: int | None = None
    ) -> list[Any]:
        """The answers' bodies. All requests are sent before the first answer is read: for small ones, and few."""
        deadline = time.monotonic() + (timeout_ms or self._config.request_timeout_ms) / 1000
        sent = [self._core.send(api_key, body, max_version=max_version) for body in bodies]
        self._write(b"".join(chunk for one in sent for chunk in one.data), deadline)
        answers: list[Any] = []
        events = self._events(deadline)
        while len(answers) < len(sent):
            event = next(events)
            assert isinstance(event, Answer)
            answers.append(event.body)
        return answers

    def close(self) -> None:
        self._socket.close()

    def _agree_on_versions(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        self._write(self._core.start(), deadline)
        for _ in self._events(deadline):
            return

    def _write(self, data: bytes, deadline: float) -> None:
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            self._socket.sendall(data)
        except TimeoutError:
            raise NoAnswer(f"{self._name} does not take more data") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self._name} broke: {error}") from None

    def _events(self, deadline: float) -> Iterator[object]:
        while True:
            try:
                events = list(self._core.received(self._read(deadline)))
            except (MalformedMessage, ProtocolViolation) as error:
                raise ConnectionLost(f"{self._name} does not speak Kafka's protocol: {error}") from None
            answer = self._core.data_to_send()
            if answer:
                self._write(answer, deadline)
            yield from events

    def _read(self, deadline: float) -> int:
        try:
            count = self._receive(deadline)
        except TimeoutError:
            raise NoAnswer(f"{self._name} did not answer in time") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self._name} broke: {error}") from None
        if count == 0:
            raise ConnectionLost(f"{self._name} closed the connection")
        return count

    def _receive(self, deadline: float) -> int:
        buffer = self._core.get_buffer()
        left_s = deadline - time.monotonic()
        if left_s > SLOW_ANSWER_S:
            self._socket.settimeout(SLOW_ANSWER_S)
            try:
                return self._socket.recv_into(buffer)
            except TimeoutError:
                left_s = deadline - time.monotonic()
                logger.warning(
                    "%s has not answered for %.0f s; waiting for up to %.0f s more", self._name, SLOW_ANSWER_S, left_s
                )
        self._socket.settimeout(max(left_s, 0.001))
        return self._socket.recv_into(buffer)


class BlockingClient:
    """All brokers of a cluster behind one object."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._metadata: ClusterMetadata | None = None
        self._was_connected = False
        self._deadline: float | None = None
        """Of the call that is being made."""
        self._reachability = Reachability(config.client_id)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def connected_to(self) -> list[str]:
        return sorted(f"{host}:{port}" for host, port in self._connections)

    # --- sending ----------------------------------------------------------------------------------------------

    def connection_to(self, address: tuple[str, int]) -> BlockingConnection:
        """Raises OSError if nobody listens there."""
        connection = self._connections.get(address)
        if connection is None:
            left_s = None if self._deadline is None else self._deadline - time.monotonic()
            connection = self._connections[address] = BlockingConnection(*address, self.config, left_s)
            self._was_connected = True
            self._reachability.reached(Node(0, *address))
        return connection

    @contextmanager
    def within(self, timeout_ms: int | None) -> Iterator[None]:
        """Whatever is connected to and asked in here, and in calls that it makes, ends by then. None sets no limit."""
        if timeout_ms is None:
            yield
            return
        outer = self._deadline
        deadline = time.monotonic() + timeout_ms / 1000
        self._deadline = deadline if outer is None else min(outer, deadline)
        try:
            yield
        finally:
            self._deadline = outer

    def request(self, api_key: ApiKey, body: Any, *, node: Node | None = None, **options: Any) -> Any:
        """Ask a broker, or whichever answers first. Raises ConnectionLost and BrokersUnreachable."""
        (answer,) = self.request_all(api_key, [body], node=node, **options)
        return answer

    def request_all(
        self, api_key: ApiKey, bodies: Iterable[Any], *, node: Node | None = None, **options: Any
    ) -> list[Any]:
        """Several requests to one broker, and its answers to all of them."""
        with self.within(self.config.default_api_timeout_ms):
            return self._request_all(api_key, bodies, node, **options)

    def _request_all(
        self,
        api_key: ApiKey,
        bodies: Iterable[Any],
        node: Node | None,
        *,
        timeout_ms: int | None = None,
        **options: Any,
    ) -> list[Any]:
        assert self._deadline is not None
        address = (node.host, node.port) if node else self._any_address()
        try:
            connection = self.connection_to(address)
            left_s = _left(self._deadline, (timeout_ms or self.config.request_timeout_ms) / 1000)
            return connection.request_all(api_key, bodies, timeout_ms=max(1, int(left_s * 1000)), **options)
        except ConnectionLost:
            self._forget(address)
            raise
        except OSError as error:
            raise ConnectionLost(f"{address[0]}:{address[1]} is not reachable: {_reason(error)}") from None

    def features_of(self, node: Node | None = None) -> dict[str, int]:
        """What a broker said when it was connected to. Raises ConnectionLost and BrokersUnreachable."""
        address = (node.host, node.port) if node else self._any_address()
        try:
            return self.connection_to(address).features
        except OSError as error:
            raise ConnectionLost(f"{address[0]}:{address[1]} is not reachable: {_reason(error)}") from None

    def _any_address(self) -> tuple[str, int]:
        """One that is connected, or the first that answers: of those we learned of, then of those we were given."""
        if self._connections:
            return next(iter(self._connections))
        learned = [(node.host, node.port) for node in self._metadata.nodes.values()] if self._metadata else []
        failures = {}
        for address in dict.fromkeys([*learned, *self.config.bootstrap_servers]):
            try:
                self.connection_to(address)
            except (OSError, ConnectionLost) as error:
                failures[address] = _reason(error)
            else:
                for failed, reason in failures.items():
                    where = f"asking {address[0]}:{address[1]} instead"
                    self._reachability.failed(Node(0, *failed), reason, where, _now_ms())
                return address
        texts = [
            reason if reason.startswith(f"{host}:{port} ") else f"{host}:{port}: {reason}"
            for (host, port), reason in failures.items()
        ]
        if self._was_connected:
            raise ConnectionLost(f"no broker answers any more ({'; '.join(texts)})")
        raise BrokersUnreachable(
            f"no broker answers ({'; '.join(texts)}); start one with `oncelog broker`, or check bootstrap.servers"
        )

    def _forget(self, address: tuple[str, int]) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    # --- metadata ---------------------------------------------------------------------------------------------

    def refresh_metadata(self, topics: Iterable[str] | None, *, timeout_ms: int | None = None) -> ClusterMetadata:
        """Metadata of the named topics, or of all (None). Topics are never created by asking. `timeout_ms` is for each
        attempt, and after it there is no other."""
        names = None if topics is None else [{"name": name} for name in topics]

        def ask() -> ClusterMetadata:
            asked = {"topics": names, "allow_auto_topic_creation": False}
            return ClusterMetadata.from_message(self.request(ApiKey.METADATA, asked, timeout_ms=timeout_ms))

        known = self._metadata if names is not None else None
        self._metadata = self.retrying(ask, timeout_ms=timeout_ms).keeping_topics_of(known)
        return self._metadata

    def topic(self, name: str) -> TopicMetadata:
        """Raises UnknownTopicOrPartition, or what else the broker says about the topic."""
        metadata = self._metadata
        if metadata is None or name not in metadata.topics or metadata.topics[name].error_code:
            metadata = self.refresh_metadata([name])
        topic = metadata.topics.get(name)
        if topic is None or topic.error_code == UnknownTopicOrPartition.code:
            meant = self.topic_meant(name)
            hint = "" if meant is None else f"did you mean {meant}? Otherwise "
            raise UnknownTopicOrPartition(
                f"topic {name!r} does not exist; {hint}create it with `oncelog topics create {name}`"
            )
        if topic.error_code:
            raise error_for_code(topic.error_code, f"topic {name!r}: {error_for_code(topic.error_code).message}")
        return topic

    def topic_meant(self, name: str) -> str | None:
        """Of the topics that exist, the one that was probably meant by a name of none. Only for errors: it asks for all
        topics."""
        asked = {"topics": None, "allow_auto_topic_creation": False}
        try:
            told = ClusterMetadata.from_message(self.request(ApiKey.METADATA, asked))
        except OncelogError:
            return None
        return nearest(name, (topic.name for topic in told.topics.values() if not topic.is_internal))

    def leader_of(self, partition: TopicPartition) -> Node:
        """Raises LeaderNotAvailable, which is worth a retry."""
        found = self.partition(partition)
        assert self._metadata is not None
        node = self._metadata.nodes.get(found.leader)
        if found.leader == NO_LEADER or node is None:
            raise LeaderNotAvailable(without_leader([partition]))
        return node

    def partition(self, partition: TopicPartition) -> PartitionMetadata:
        topic = self.topic(partition.topic)
        found = topic.partition(partition.partition)
        if found is None:
            self.refresh_metadata([partition.topic])  # it may have grown
            topic = self.topic(partition.topic)
            found = topic.partition(partition.partition)
        if found is None:
            raise UnknownTopicOrPartition(no_such_partition(topic, partition.partition))
        return found

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        grouped: dict[Node, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.leader_of(partition), []).append(partition)
        return grouped

    # --- retries ----------------------------------------------------------------------------------------------

    def retrying(self, attempt: Callable[[], T], *, timeout_ms: int | None = None) -> T:
        """Repeat what may be repeated until it works, within `default.api.timeout.ms` and with growing pauses.

        Lost connections and errors that Kafka calls retriable are repeated, after fresh metadata where it is stale.
        """
        with self.within(timeout_ms or self.config.default_api_timeout_ms):
            return self._retrying(attempt)

    def _retrying(self, attempt: Callable[[], T]) -> T:
        assert self._deadline is not None
        began, deadline = time.monotonic(), self._deadline
        backoff_ms = self.config.retry_backoff_ms
        is_told = False
        while True:
            try:
                return attempt()
            except (ConnectionLost, KafkaError) as error:
                now = time.monotonic()
                if not is_worth_a_retry(error) or now + backoff_ms / 1000 >= deadline:
                    raise
                is_news = not is_told and now - began >= PATIENCE_S
                is_told = is_told or is_news
                level = logging.WARNING if is_news else logging.DEBUG
                logger.log(level, "%s; trying again for up to %.0f s", clause(error), deadline - now)
                self._metadata = None
                time.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, self.config.retry_backoff_max_ms)


def is_worth_a_retry(error: Exception) -> bool:
    if isinstance(error, ConnectionLost):
        return True
    # A topic that does not exist is retriable to Kafka (it may be about to), but to a person it is a typo.
    if isinstance(error, UnknownTopicOrPartition):
        return False
    return isinstance(error, KafkaError) and error.retriable


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Raises OSError, also for a host or a port that there cannot be."""
    try:
        return socket.create_connection((host, port), timeout_s)
    except (ValueError, OverflowError) as error:  # of a name that is none, or a port beyond 65535
        raise OSError(f"there is no such address: {error}") from None


def _left(deadline: float | None, most_s: float) -> float:
    """What is left until the deadline; at most `most_s`, and long enough to be told that it is too late."""
    return most_s if deadline is None else max(0.001, min(most_s, deadline - time.monotonic()))


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "unknown host"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
