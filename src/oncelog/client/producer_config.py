"""What a producer may be told: Kafka's keys with Kafka's meaning, and a few of our own.

`ProducerConfig.of` is the one door: it parses, fills in defaults and refuses contradictions, so that everything behind
it may rely on the values. Where Kafka's Java client falls back in silence, we decided as follows:

- **A promise never gives way in silence.** Idempotence is on by default, and a setting that makes it impossible (more
  than five requests in flight, `retries=0`) is an error even if nobody wrote `enable.idempotence`; Java turns it off
  for `retries=0`. The one exception is Java's own: `acks=0` or `acks=1` alone says clearly enough that less is wanted,
  and turns idempotence off, with a WARNING. Written together with `enable.idempotence=true` it is an error.
- **A number that was not given follows those that were**: `delivery.timeout.ms` grows to `linger.ms` +
  `request.timeout.ms` (as in Java), and to 12 hours where records wait in a spool; `max.request.size` shrinks to
  `buffer.memory`, `batch.size` to `max.request.size`, and each `...max.ms` grows to the backoff or timeout that it
  bounds.
- **Two given numbers that contradict each other are an error** that says which to change to what.
- **A setting that would have no effect is an error** where that could surprise: the spool's settings without a spool,
  and Kafka's keys that nothing here obeys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

from oncelog.client.partitioner import KEY_HASHES
from oncelog.client.record_checks import check_topic
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
from oncelog.errors import InvalidConfig, OncelogError
from oncelog.records.compression import NAMES, codec_named, level_set

logger = logging.getLogger(__name__)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
MAX_TOLD = 1_000
"""Clients of which it is remembered that they were told something once."""
MAX_IN_FLIGHT_WHEN_IDEMPOTENT = 5
SPOOLED_DELIVERY_TIMEOUT_MS = 12 * 60 * 60 * 1000
"""Who keeps records on disk wants them sent after a long outage too; no longer than brokers surely know a producer."""

UserPartitioner = Callable[[str, "bytes | None", "bytes | None", int], int]
"""topic, key, value, number of partitions -> partition."""

SERIALIZER_NAMES = ("auto", "bytes", "str", "int", "int32", "int16", "float", "float32", "json")
_JAVA_SERIALIZERS = {
    "ByteArraySerializer": "bytes",
    "ByteBufferSerializer": "bytes",
    "BytesSerializer": "bytes",
    "StringSerializer": "str",
    "LongSerializer": "int",
    "IntegerSerializer": "int32",
    "ShortSerializer": "int16",
    "DoubleSerializer": "float",
    "FloatSerializer": "float32",
}
_SERIALIZER_ALIASES = {
    f"org.apache.kafka.common.serialization.{java}": name for java, name in _JAVA_SERIALIZERS.items()
}

_JAVA_ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_PARTITIONER_ALIASES = {
    _JAVA_ROUND_ROBIN: _JAVA_ROUND_ROBIN,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
    "murmur2_random": "murmur2",
    "random": "sticky",
}
_PARTITIONERS_THAT_IGNORE_KEYS = {"sticky": "sticky", _JAVA_ROUND_ROBIN: "round_robin"}


@dataclass(frozen=True, slots=True)
class AcksKind:
    allowed: str = "all (or -1), 1 or 0"

    def parse(self, key: str, given: Any) -> int:
        acks = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER, "0": ACKS_NONE}.get(str(given).strip().lower())
        if acks is None:
            raise refused(key, given, self.allowed)
        return acks


@dataclass(frozen=True, slots=True)
class InterceptorsKind:
    allowed: str = "a list of objects (or classes) with `on_send(record)` or `on_acknowledgement(metadata, error)`"

    def parse(self, key: str, given: Any) -> tuple[Any, ...]:
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise refused(key, given, self.allowed)
        interceptors = tuple(given)
        for each in interceptors:
            if not (hasattr(each, "on_send") or hasattr(each, "on_acknowledgement")):
                raise refused(key, each, self.allowed)
        return interceptors


@dataclass(frozen=True, slots=True)
class TransactionalIdKind:
    allowed: str = "a non-empty string"

    def parse(self, key: str, given: Any) -> str:
        if not isinstance(given, str) or not given:
            raise refused(key, given, self.allowed)
        return given


@dataclass(frozen=True, slots=True)
class TopicKind:
    allowed: str = "the name of a topic"

    def parse(self, key: str, given: Any) -> str:
        try:
            check_topic(given)
        except (TypeError, OncelogError):
            raise refused(key, given, self.allowed) from None
        return str(given)


@dataclass(frozen=True, slots=True)
class PathKind:
    allowed: str = "the path of a folder"

    def parse(self, key: str, given: Any) -> str:
        path = given.__fspath__() if hasattr(given, "__fspath__") else given
        if not isinstance(path, str) or not path:
            raise refused(key, given, self.allowed)
        return path


PARTITIONERS = NameOr(
    Choice(("murmur2", "round_robin", "sticky", *KEY_HASHES, "murmur2_random", "random"), _PARTITIONER_ALIASES),
    own="a function of (topic, key, value, number of partitions) that returns a partition",
    takes=("topic", "key", "value", "number of partitions"),
)


def serializers(part: str) -> NameOr:
    own = f"a function of the {part}, or an object with `serialize(topic, {part})`"
    return NameOr(Choice(SERIALIZER_NAMES, _SERIALIZER_ALIASES), own, (part,), method="serialize")


_GROWS_TO = {
    "retry_backoff_ms": "retry_backoff_max_ms",
    "reconnect_backoff_ms": "reconnect_backoff_max_ms",
    "socket_connection_setup_timeout_ms": "socket_connection_setup_timeout_max_ms",
}
_BOUNDED_BY = {**_GROWS_TO, "batch_size": "max_request_size", "max_request_size": "buffer_memory"}

ALSO = {"partitioner_class": "partitioner", "interceptor_classes": "interceptors"}
"""Kafka's names of two settings whose values are objects here, not classes."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Made by `ProducerConfig.of`, which checks; field names are Kafka's keys with underscores."""

    bootstrap_servers: Servers
    """The brokers to ask first; they name all others. Without a port, 9092 is meant."""
    client_id: Text = "oncelog-producer"
    """The name under which brokers log, count and throttle this producer."""

    acks: Annotated[int, AcksKind()] = ACKS_ALL
    """Who must have a record before it counts as sent: all in-sync replicas, the leader (1), or nobody (0)."""
    enable_idempotence: Flag = True
    """Retries neither duplicate nor reorder. Off if only `acks` is given, as 0 or 1."""
    max_in_flight_requests_per_connection: Annotated[int, Number(1)] = 5
    """Requests that one broker has not answered yet; at most 5 when idempotent."""
    retries: Annotated[int, Number(0)] = MAX_INT
    """How often a batch is sent again; `delivery.timeout.ms` is the better bound."""
    retry_backoff_ms: Milliseconds = 100
    """The pause before the first retry; it doubles."""
    retry_backoff_max_ms: Milliseconds = 1_000
    """The longest pause between two retries."""
    delivery_timeout_ms: Milliseconds = 120_000
    """After this time a record has either been acknowledged or failed, retries included."""
    request_timeout_ms: Annotated[int, milliseconds(high=MAX_INT)] = 30_000
    """How long a broker may take to answer one request."""

    linger_ms: Milliseconds = 5
    """How long a batch waits for more records before it is sent."""
    batch_size: Annotated[int, size_in_bytes()] = 131_072
    """The size at which a batch is sent at once; 0 sends each record alone. Memory is taken as records come."""
    max_request_size: Annotated[int, size_in_bytes(1)] = 1_048_576
    """The largest request, and with it the largest record."""
    buffer_memory: Annotated[int, size_in_bytes(1, MAX_LONG)] = 33_554_432
    """Memory for records that are not acknowledged yet, over all partitions."""
    buffer_full: Annotated[str, Choice(("block", "fail", "drop", "spill"))] = "block"
    """What `send()` does when that memory is full: wait, fail at once, drop and count, or keep it in the spool."""
    max_block_ms: Milliseconds = 60_000
    """How long `send()` may wait for memory or for metadata."""

    compression_type: Annotated[str, Choice(NAMES)] = "none"
    """How batches are compressed."""
    compression_gzip_level: Annotated[int, Number(-1, 9)] = -1
    """1 (fast) to 9 (small); -1 is gzip's own default, 6."""
    compression_lz4_level: Annotated[int, Number(1, 17)] = 9
    """As in Kafka, the default means lz4's fast mode."""
    compression_zstd_level: Annotated[int, Number(-131_072, 22)] = 3
    """Lower is faster, higher is smaller."""

    partitioner: Annotated[str | UserPartitioner, PARTITIONERS] = "murmur2"
    """Where a record without a partition goes. `murmur2`: by its key, as Kafka's clients do; without one, to a
    partition that is kept for a batch. `round_robin`: by its key; without one, to the next partition. `sticky`: to a
    partition that is kept for a batch, whatever the key. `consistent_random`, confluent-kafka's default, and
    `consistent`, `fnv1a`, `fnv1a_random` are librdkafka's: a key goes where it has always gone. Its
    `murmur2_random` is `murmur2` here, its `random` is `sticky`. `partitioner.class` is understood too."""
    partitioner_ignore_keys: Flag = False
    """Choose as if no record had a key. `sticky` implies it, and so does Kafka's `RoundRobinPartitioner`."""
    partitioner_adaptive_partitioning_enable: Flag = True
    """Without a key, prefer partitions whose records leave sooner."""
    key_serializer: Annotated[Any, serializers("key")] = "auto"
    """How a key becomes bytes; `auto` takes bytes as they are and text as UTF-8."""
    value_serializer: Annotated[Any, serializers("value")] = "auto"
    """How a value becomes bytes; `auto` takes bytes as they are and text as UTF-8."""
    interceptors: Annotated[tuple[Any, ...], InterceptorsKind()] = ()
    """See or change records before they leave, and see their results. `interceptor.classes` is understood too."""

    metadata_max_age_ms: Milliseconds = 300_000
    """How old knowledge of leaders may become before it is asked for again."""
    metadata_max_idle_ms: Annotated[int, milliseconds(5_000)] = 300_000
    """After this time without a record, a topic's metadata is forgotten."""
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

    transactional_id: Annotated[str | None, Optional(TransactionalIdKind())] = None
    """The name under which transactions go on from one producer to its successor. Only one producer at a time may use
    it: a new one fences those before it."""
    transaction_timeout_ms: Annotated[int, milliseconds(1, MAX_INT)] = 60_000
    """After this time without an end a transaction is aborted by its coordinator. Brokers allow 15 minutes at most,
    unless told otherwise."""

    spool_dir: Annotated[str | None, Optional(PathKind())] = None
    """The folder of the durable spool; without it there is none."""
    spool_max_bytes: Annotated[int, size_in_bytes(1, MAX_LONG)] = 1_073_741_824
    """How large the spool may become on disk."""
    spool_flush: Annotated[str, Choice(("none", "fsync"))] = "none"
    """When a spooled record counts as kept: in the page cache, where it survives a crash of the process (`none`), or on
    the disk, where it survives one of the machine (`fsync`)."""
    spool_unknown: Annotated[str, Choice(("refuse", "resend", "discard"))] = "refuse"
    """After a restart: what to do with records of which nobody can tell any more whether the broker has them."""
    spool_positions_topic: Annotated[str, TopicKind()] = "oncelog-spool-positions"
    """With `transactional.id`: the compacted topic that keeps how far each spool is committed. It is created if it is
    missing."""

    @classmethod
    def of(cls, bootstrap_servers: str | Iterable[str] | Mapping[str, Any], **settings: Any) -> ProducerConfig:
        """`of("host:9092", linger_ms=5)` or `of({"bootstrap.servers": "host:9092", "linger.ms": "5"})`.

        Raises InvalidConfig, which says what to change."""
        given = read_settings(cls, bootstrap_servers, settings, also=ALSO, client="producer")
        _decide_ignore_keys(given)
        config = _with_followers(cls(**given), given.keys())
        _check_numbers(config)
        _check_idempotence(config, is_explicit="enable_idempotence" in given)
        _check_transactions(config)
        _check_spool(config, given.keys())
        if "enable_idempotence" not in given and not config.enable_idempotence:
            _tell_of_acks(config.client_id, config.acks)
        return config

    @property
    def takes_bytes(self) -> bool:
        """Keys and values that are bytes need no serializer."""
        return bool(self.key_serializer == "auto" and self.value_serializer == "auto")

    @property
    def compression_codec(self) -> int:
        return codec_named(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """What `records.compression.compress` takes: None is the codec's own default."""
        return level_set(self.compression_codec, getattr(self, f"compression_{self.compression_type}_level", None))


def _decide_ignore_keys(given: dict[str, Any]) -> None:
    """The partitioners that never look at a key say so in `partitioner_ignore_keys`, where everyone else reads it."""
    chosen = given.get("partitioner")
    if isinstance(chosen, str) and chosen in KEY_HASHES and given.get("partitioner_ignore_keys"):
        raise InvalidConfig(
            f"partitioner {chosen} places records by their keys, but partitioner.ignore.keys is true; use"
            " partitioner=sticky or round_robin to ignore keys"
        )
    if not isinstance(chosen, str) or chosen not in _PARTITIONERS_THAT_IGNORE_KEYS:
        return
    given["partitioner"] = _PARTITIONERS_THAT_IGNORE_KEYS[chosen]
    if given.setdefault("partitioner_ignore_keys", True) is False:
        raise InvalidConfig(
            f"partitioner {chosen} never looks at keys, but partitioner.ignore.keys is false;"
            " use partitioner=murmur2 or round_robin to place records by their keys"
        )


def _with_followers(config: ProducerConfig, given: Collection[str]) -> ProducerConfig:
    """Defaults that give way to what the user did set; the module's docstring says which."""
    followers: dict[str, int] = {
        "max_request_size": min(config.max_request_size, config.buffer_memory),
        "batch_size": min(config.batch_size, config.max_request_size, config.buffer_memory),
        "delivery_timeout_ms": max(
            config.delivery_timeout_ms if config.spool_dir is None else SPOOLED_DELIVERY_TIMEOUT_MS,
            config.linger_ms + config.request_timeout_ms,
        ),
        **{bound: max(getattr(config, bound), getattr(config, name)) for name, bound in _GROWS_TO.items()},
    }
    changes: dict[str, Any] = {name: value for name, value in followers.items() if name not in given}
    if "enable_idempotence" not in given:
        changes["enable_idempotence"] = config.acks == ACKS_ALL
    return replace(config, **changes)


def _check_numbers(config: ProducerConfig) -> None:
    least = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms < least:
        raise InvalidConfig(
            f"delivery.timeout.ms ({config.delivery_timeout_ms}) is less than linger.ms ({config.linger_ms}) +"
            f" request.timeout.ms ({config.request_timeout_ms}), so that not even one attempt fits: raise"
            f" delivery.timeout.ms to at least {least}, or lower the other two"
        )
    for name, bound in _BOUNDED_BY.items():
        value, limit = getattr(config, name), getattr(config, bound)
        if value > limit:
            name, bound = dotted(name), dotted(bound)
            raise InvalidConfig(
                f"{name} ({value}) is larger than {bound} ({limit}): raise {bound} to at least {value},"
                f" or lower {name} to at most {limit}"
            )


def _check_idempotence(config: ProducerConfig, *, is_explicit: bool) -> None:
    if not config.enable_idempotence:
        return
    why = "enable.idempotence is true" if is_explicit else "idempotence is on unless enable.idempotence says otherwise"
    give_up = "set enable.idempotence=false and live with duplicates and reordering after retries"
    if config.acks != ACKS_ALL:
        raise InvalidConfig(f"acks is {config.acks}, but {why}, and that needs acks=all: set acks=all, or {give_up}")
    in_flight = config.max_in_flight_requests_per_connection
    if in_flight > MAX_IN_FLIGHT_WHEN_IDEMPOTENT:
        raise InvalidConfig(
            f"max.in.flight.requests.per.connection is {in_flight}, but {why}, and brokers recognise a repeat among a"
            f" producer's last {MAX_IN_FLIGHT_WHEN_IDEMPOTENT} batches only: set it to at most"
            f" {MAX_IN_FLIGHT_WHEN_IDEMPOTENT}, or {give_up}"
        )
    if config.retries == 0:
        raise InvalidConfig(
            f"retries is 0, but {why}, and without a retry the fate of a lost request stays unknown: leave retries"
            f" out (delivery.timeout.ms bounds them), or {give_up}"
        )


@lru_cache(MAX_TOLD)
def _tell_of_acks(client_id: str | None, acks: int) -> None:
    """Once for each client, however many producers it makes. Kafka says it as well."""
    harm = "retries may duplicate and reorder records, and a leader that fails may take acknowledged ones with it"
    if acks == ACKS_NONE:
        harm = "the broker does not confirm what it stored, and a connection that breaks may lose and reorder records"
    logger.warning(
        "%s: acks is %d, so idempotence is off: %s. Leave acks out to have it, or set enable.idempotence=false as well"
        " if that is meant",
        client_id,
        acks,
        harm,
    )


def _check_transactions(config: ProducerConfig) -> None:
    if config.transactional_id is not None and not config.enable_idempotence:
        raise InvalidConfig(
            "transactional.id needs idempotence: set acks=all and leave enable.idempotence on, or leave"
            " transactional.id out"
        )


def _check_spool(config: ProducerConfig, given: Collection[str]) -> None:
    if config.spool_dir is None:
        idle = [dotted(name) for name in given if name.startswith("spool_") and name != "spool_dir"]
        if config.buffer_full == "spill":
            idle.append("buffer.full=spill")
        if idle:
            raise InvalidConfig(f"{idle[0]} needs a spool: set spool.dir to a folder, or leave {idle[0]} out")
    elif not config.enable_idempotence:
        raise InvalidConfig(
            "spool.dir promises that nothing is sent twice after a restart, which needs idempotence: set acks=all and"
            " leave enable.idempotence on, or leave spool.dir out"
        )
    elif config.transactional_id is None and "spool_positions_topic" in given:
        raise InvalidConfig(
            "spool.positions.topic is for a spool that sends in transactions: set transactional.id, or leave"
            " spool.positions.topic out"
        )
