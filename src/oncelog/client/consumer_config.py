"""What a consumer may be told: Kafka's keys with Kafka's meaning, and one of our own (`fetch.queue.max.bytes`).

`ConsumerConfig.of` is the one door: it parses, fills in defaults and refuses contradictions, so that everything behind
it may rely on the values. What we decided:

- **Offsets are committed automatically only in a group.** Without `group.id`, `enable.auto.commit` is off unless it is
  asked for, and then it is an error, as in Java.
- **Each group protocol has its own settings.** With `group.protocol=consumer` the broker keeps the session and assigns
  the partitions: `session.timeout.ms`, `heartbeat.interval.ms` and `partition.assignment.strategy` are refused, as in
  Java; with `classic`, so is `group.remote.assignor`.
- **A number that was not given follows those that were**: `heartbeat.interval.ms` shrinks to a third of
  `session.timeout.ms`, `fetch.max.bytes` to `fetch.queue.max.bytes`, `fetch.max.wait.ms` to half of
  `request.timeout.ms`, and each `...max.ms` grows to the backoff or timeout that it bounds.
- **Two given numbers that contradict each other are an error** that says which to change to what.
- **A setting that would have no effect is an error** where that could surprise: a group's settings without a group, and
  Kafka's keys that nothing here obeys.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from oncelog.client.settings import (
    MAX_INT,
    MAX_LONG,
    Choice,
    Flag,
    Milliseconds,
    NameOr,
    Number,
    Optional,
    SecurityProtocolKind,
    Servers,
    Text,
    dotted,
    milliseconds,
    read_settings,
    refused,
    size_in_bytes,
)
from oncelog.errors import InvalidConfig
from oncelog.types import IsolationLevel

BY_DURATION = "by_duration:"
HEARTBEATS_PER_SESSION = 3

ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
_JAVA_ASSIGNORS = {
    f"org.apache.kafka.clients.consumer.{java}": name
    for java, name in {
        "RangeAssignor": "range",
        "RoundRobinAssignor": "roundrobin",
        "StickyAssignor": "sticky",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }.items()
}

DESERIALIZER_NAMES = ("bytes", "str", "int", "int32", "int16", "float", "float32", "json")
_JAVA_DESERIALIZERS = {
    f"org.apache.kafka.common.serialization.{java}Deserializer": name
    for java, name in {
        "ByteArray": "bytes",
        "ByteBuffer": "bytes",
        "Bytes": "bytes",
        "String": "str",
        "Long": "int",
        "Integer": "int32",
        "Short": "int16",
        "Double": "float",
        "Float": "float32",
    }.items()
}

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,9})?)S)?)?", re.I
)
_MS_PER = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


@dataclass(frozen=True, slots=True)
class GroupIdKind:
    allowed: str = "a non-empty string"

    def parse(self, key: str, given: Any) -> str:
        if not isinstance(given, str) or not given.strip():
            raise refused(key, given, f"{self.allowed}, or left out")
        return given


_RESETS = Choice(
    ("earliest", "latest", "none"),
    # What librdkafka calls them.
    {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"},
)


@dataclass(frozen=True, slots=True)
class OffsetResetKind:
    allowed: str = f"{_RESETS.allowed}, or {BY_DURATION} and an ISO 8601 duration such as {BY_DURATION}PT1H"

    def parse(self, key: str, given: Any) -> str:
        text = str(given).strip()
        if text.lower().startswith(BY_DURATION):
            if duration_ms(text[len(BY_DURATION) :]) is None:
                raise refused(key, given, self.allowed)
            return BY_DURATION + text[len(BY_DURATION) :].upper()
        try:
            return _RESETS.parse(key, given)
        except InvalidConfig:
            raise refused(key, given, self.allowed) from None


def duration_ms(text: str) -> int | None:
    """An ISO 8601 duration of days and smaller parts, as Java's `Duration` reads it; None if it is none."""
    found = _DURATION.fullmatch(text.strip())
    parts = {unit: amount for unit, amount in found.groupdict().items() if amount} if found else {}
    if not parts or text.strip().upper().endswith("T"):
        return None
    return sum(round(float(amount.replace(",", ".")) * _MS_PER[unit]) for unit, amount in parts.items())


@dataclass(frozen=True, slots=True)
class IsolationKind:
    allowed: str = "one of read_uncommitted, read_committed"

    def parse(self, key: str, given: Any) -> IsolationLevel:
        if isinstance(given, IsolationLevel):
            return given
        levels = {level.name.lower(): level for level in IsolationLevel}
        return levels[Choice(tuple(levels)).parse(key, given)]


@dataclass(frozen=True, slots=True)
class AssignorsKind:
    """In the order of preference: the first that all members of the group have is used."""

    allowed: str = f"one or several of {', '.join(ASSIGNOR_NAMES)}, or objects with `name` and `assign`"

    def parse(self, key: str, given: Any) -> tuple[Any, ...]:
        if isinstance(given, str):
            given = [name for name in given.split(",") if name.strip()]
        elif _is_assignor(given):
            given = [given]
        if not isinstance(given, Iterable):
            raise refused(key, given, self.allowed)
        chosen = {name_of(each): each for each in (self._one(key, one) for one in given)}
        if not chosen:
            raise refused(key, given, self.allowed)
        return tuple(chosen.values())

    def _one(self, key: str, given: Any) -> Any:
        if _is_assignor(given):
            return given
        if not isinstance(given, str):
            raise refused(key, given, self.allowed)
        return Choice(ASSIGNOR_NAMES, _JAVA_ASSIGNORS).parse(key, given)


def _is_assignor(given: Any) -> bool:
    return callable(getattr(given, "assign", None)) and isinstance(getattr(given, "name", None), str)


def name_of(assignor: Any) -> str:
    """The name under which the members of a group agree on an assignor."""
    return assignor if isinstance(assignor, str) else str(assignor.name)


@dataclass(frozen=True, slots=True)
class InterceptorsKind:
    allowed: str = "a list of objects (or classes) with `on_consume(records)` or `on_commit(offsets)`"

    def parse(self, key: str, given: Any) -> tuple[Any, ...]:
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise refused(key, given, self.allowed)
        interceptors = tuple(given)
        for each in interceptors:
            if not (hasattr(each, "on_consume") or hasattr(each, "on_commit")):
                raise refused(key, each, self.allowed)
        return interceptors


def deserializers(part: str) -> NameOr:
    own = f"a function of the bytes, or an object with `deserialize(topic, {part})`"
    return NameOr(Choice(DESERIALIZER_NAMES, _JAVA_DESERIALIZERS), own, (part,), method="deserialize")


_GROWS_TO = {
    "retry_backoff_ms": "retry_backoff_max_ms",
    "reconnect_backoff_ms": "reconnect_backoff_max_ms",
    "socket_connection_setup_timeout_ms": "socket_connection_setup_timeout_max_ms",
}
_BOUNDED_BY = {**_GROWS_TO, "fetch_max_bytes": "fetch_queue_max_bytes", "fetch_min_bytes": "fetch_max_bytes"}
_LESS_THAN = {"heartbeat_interval_ms": "session_timeout_ms", "fetch_max_wait_ms": "request_timeout_ms"}

_BROKERS_SAY = "where the broker says it (its group.consumer.{} holds)"
_ONLY_CLASSIC = {
    "session_timeout_ms": _BROKERS_SAY.format("session.timeout.ms"),
    "heartbeat_interval_ms": _BROKERS_SAY.format("heartbeat.interval.ms"),
    "partition_assignment_strategy": "where the broker assigns (see group.remote.assignor)",
}
_ONLY_CONSUMER = {"group_remote_assignor": "where members assign (see partition.assignment.strategy)"}
_ONLY_IN_A_GROUP = ("group_instance_id", *_ONLY_CONSUMER)

ALSO = {"interceptor_classes": "interceptors"}
"""Kafka's name of a setting whose values are objects here, not classes."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Made by `ConsumerConfig.of`, which checks; field names are Kafka's keys with underscores."""

    bootstrap_servers: Servers
    """The brokers to ask first; they name all others. Without a port, 9092 is meant."""
    client_id: Text = "oncelog-consumer"
    """The name under which brokers log, count and throttle this consumer."""
    client_rack: Text = ""
    """Where this consumer is: a replica in the same rack is read from, if the brokers allow it."""

    group_id: Annotated[str | None, Optional(GroupIdKind())] = None
    """The group whose members share the partitions and the committed offsets; without it there are neither."""
    group_instance_id: Annotated[str | None, Optional(GroupIdKind())] = None
    """A name that outlives a restart: a member that comes back under it within its session keeps its partitions."""
    group_protocol: Annotated[str, Choice(("classic", "consumer"))] = "classic"
    """Who assigns partitions: a member of the group (`classic`), or the broker, without stopping the world (`consumer`,
    KIP-848)."""
    group_remote_assignor: Annotated[str | None, Optional(GroupIdKind())] = None
    """With `group.protocol=consumer`: the broker's assignor, such as `uniform` or `range`; the broker's own choice if
    it is left out."""
    partition_assignment_strategy: Annotated[tuple[Any, ...], AssignorsKind()] = ("range", "cooperative-sticky")
    """With `group.protocol=classic`: how partitions are shared, in the order of preference. All members must have one
    in common."""
    session_timeout_ms: Annotated[int, milliseconds(2, MAX_INT)] = 45_000
    """With `group.protocol=classic`: after this time without a heartbeat the group takes a member for dead."""
    heartbeat_interval_ms: Annotated[int, milliseconds(1, MAX_INT)] = 3_000
    """With `group.protocol=classic`: how often a member says that it lives."""
    max_poll_interval_ms: Annotated[int, milliseconds(1, MAX_INT)] = 300_000
    """After this time without a `poll()` the consumer leaves its group, and others get its partitions."""
    max_poll_records: Annotated[int, Number(1)] = 500
    """How many records one `poll()` returns at most."""

    auto_offset_reset: Annotated[str, OffsetResetKind()] = "latest"
    """Where to begin if the group has committed no offset, or one that is gone: at the first record, after the last
    one, that long ago (`by_duration:PT1H`), or with an error (`none`)."""
    enable_auto_commit: Flag = True
    """Commit in the background what earlier `poll()` calls returned. Off without `group.id`."""
    auto_commit_interval_ms: Annotated[int, milliseconds(high=MAX_INT)] = 5_000
    """How often."""
    isolation_level: Annotated[IsolationLevel, IsolationKind()] = IsolationLevel.READ_UNCOMMITTED
    """`read_committed` shows transactional records once their transaction is committed, and aborted ones never."""

    fetch_min_bytes: Annotated[int, size_in_bytes()] = 1
    """A broker waits until it has as much, or for `fetch.max.wait.ms`."""
    fetch_max_wait_ms: Annotated[int, milliseconds(high=MAX_INT)] = 500
    """How long a broker may wait for `fetch.min.bytes`."""
    fetch_max_bytes: Annotated[int, size_in_bytes()] = 52_428_800
    """How much a broker answers at once; its first batch comes even if it is larger."""
    max_partition_fetch_bytes: Annotated[int, size_in_bytes()] = 1_048_576
    """How much of it may be of one partition; its first batch comes even if it is larger."""
    fetch_queue_max_bytes: Annotated[int, size_in_bytes(1, MAX_LONG)] = 67_108_864
    """How many fetched bytes may wait for `poll()` before no more are asked for."""
    check_crcs: Flag = True
    """Check that batches arrive as they were sent."""

    allow_auto_create_topics: Flag = False
    """Let the broker create a topic that is subscribed to and does not exist, if it is set up to. Otherwise a
    misspelt name is a WARNING."""
    exclude_internal_topics: Flag = True
    """A pattern matches no internal topic, such as `__consumer_offsets`."""

    key_deserializer: Annotated[Any, deserializers("key")] = "bytes"
    """What a key's bytes become."""
    value_deserializer: Annotated[Any, deserializers("value")] = "bytes"
    """What a value's bytes become."""
    interceptors: Annotated[tuple[Any, ...], InterceptorsKind()] = ()
    """See or change records before `poll()` returns them, and see what is committed. `interceptor.classes` is
    understood too."""

    default_api_timeout_ms: Annotated[int, milliseconds(high=MAX_INT)] = 60_000
    """How long a call may take that was given no time of its own, with all its retries."""
    request_timeout_ms: Annotated[int, milliseconds(1, MAX_INT)] = 30_000
    """How long a broker may take to answer one request."""
    retry_backoff_ms: Milliseconds = 100
    """The pause before the first retry; it doubles."""
    retry_backoff_max_ms: Milliseconds = 1_000
    """The longest pause between two retries."""
    metadata_max_age_ms: Milliseconds = 300_000
    """How old knowledge of leaders may become before it is asked for again, and how late a new topic that matches a
    pattern is noticed at most."""
    reconnect_backoff_ms: Milliseconds = 50
    """The pause before the first reconnect; it doubles."""
    reconnect_backoff_max_ms: Milliseconds = 1_000
    """The longest pause between two reconnects."""
    socket_connection_setup_timeout_ms: Milliseconds = 10_000
    """How long one connection may take; it doubles with every failure in a row."""
    socket_connection_setup_timeout_max_ms: Milliseconds = 30_000
    """The longest that it may grow to."""
    connections_max_idle_ms: Annotated[int, milliseconds(-1)] = 540_000
    """After this time without a request a connection is closed; -1 for never."""
    send_buffer_bytes: Annotated[int, size_in_bytes(-1)] = -1
    """The socket's send buffer; -1 leaves it alone."""
    receive_buffer_bytes: Annotated[int, size_in_bytes(-1)] = -1
    """The socket's receive buffer; -1 leaves it alone."""
    security_protocol: Annotated[str, SecurityProtocolKind()] = "PLAINTEXT"
    """TLS and SASL are not supported yet."""

    @classmethod
    def of(cls, bootstrap_servers: str | Iterable[str] | Mapping[str, Any], **settings: Any) -> ConsumerConfig:
        """`of("host:9092", group_id="g")` or `of({"bootstrap.servers": "host:9092", "group.id": "g"})`.

        Raises InvalidConfig, which says what to change."""
        given = read_settings(cls, bootstrap_servers, settings, also=ALSO, client="consumer")
        config = cls(**given)
        _check_group(config, given.keys())
        config = _with_followers(config, given.keys())
        _check_numbers(config)
        return config

    @property
    def uses_kip848(self) -> bool:
        return self.group_protocol == "consumer"

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level is IsolationLevel.READ_COMMITTED

    @property
    def reset_duration_ms(self) -> int | None:
        """How long ago reading begins by `auto.offset.reset=by_duration:...`; None for every other policy."""
        if not self.auto_offset_reset.startswith(BY_DURATION):
            return None
        return duration_ms(self.auto_offset_reset.removeprefix(BY_DURATION))


def _check_group(config: ConsumerConfig, given: Collection[str]) -> None:
    if config.group_id is None:
        for name in _ONLY_IN_A_GROUP:
            if getattr(config, name) is not None:
                raise InvalidConfig(f"{dotted(name)} is for members of a group: set group.id, or leave it out")
        if "enable_auto_commit" in given and config.enable_auto_commit:
            raise InvalidConfig(
                "enable.auto.commit is true, but offsets are committed for a group: set group.id, or leave"
                " enable.auto.commit out"
            )
    other, foreign = ("classic", _ONLY_CLASSIC) if config.uses_kip848 else ("consumer", _ONLY_CONSUMER)
    for name, why in foreign.items():
        if name in given and getattr(config, name) is not None:
            raise InvalidConfig(
                f"{dotted(name)} cannot be set with group.protocol={config.group_protocol}, {why}: leave it out, or set"
                f" group.protocol={other}"
            )


def _with_followers(config: ConsumerConfig, given: Collection[str]) -> ConsumerConfig:
    """Defaults that give way to what the user did set; the module's docstring says which."""
    followers: dict[str, Any] = {
        "heartbeat_interval_ms": max(
            1, min(config.heartbeat_interval_ms, config.session_timeout_ms // HEARTBEATS_PER_SESSION)
        ),
        "fetch_max_bytes": min(config.fetch_max_bytes, config.fetch_queue_max_bytes),
        "fetch_max_wait_ms": min(config.fetch_max_wait_ms, config.request_timeout_ms // 2),
        "enable_auto_commit": config.group_id is not None,
        **{bound: max(getattr(config, bound), getattr(config, name)) for name, bound in _GROWS_TO.items()},
    }
    return replace(config, **{name: value for name, value in followers.items() if name not in given})


def _check_numbers(config: ConsumerConfig) -> None:
    for pairs, more, least_more in ((_BOUNDED_BY, "larger than", 0), (_LESS_THAN, "not less than", 1)):
        for name, bound in pairs.items():
            value, limit = getattr(config, name), getattr(config, bound)
            if value + least_more > limit:
                name, bound = dotted(name), dotted(bound)
                lower = f", or lower {name} to at most {limit - least_more}" if limit - least_more >= 1 else ""
                raise InvalidConfig(
                    f"{name} ({value}) is {more} {bound} ({limit}): raise {bound} to at least"
                    f" {value + least_more}{lower}"
                )
