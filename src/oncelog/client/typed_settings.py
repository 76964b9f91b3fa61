"""The settings of clients for type checkers and editors: `Producer(lingr_ms=5)` is an error before it runs.

Written by `python -m tools.type_settings` from the config classes, which check values; change those. A name alone is
wrong here or right; of values only the type is told, since text as in a properties file is understood as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypedDict

from oncelog.types import IsolationLevel


class FolderPath(Protocol):
    """Such as a `pathlib.Path`."""

    def __fspath__(self) -> str: ...


class ProducerSettings(TypedDict, total=False):
    """What `Producer` and `AsyncProducer` may be told."""

    client_id: str
    """The name under which brokers log, count and throttle this producer. By default `oncelog-producer`."""

    acks: Literal["all", -1, 0, 1] | str | int
    """Who must have a record before it counts as sent: all in-sync replicas, the leader (1), or nobody (0). By default
    `all`."""

    enable_idempotence: bool
    """Retries neither duplicate nor reorder. Off if only `acks` is given, as 0 or 1. By default `true`."""

    max_in_flight_requests_per_connection: int
    """Requests that one broker has not answered yet; at most 5 when idempotent. By default `5`."""

    retries: int
    """How often a batch is sent again; `delivery.timeout.ms` is the better bound. By default `2147483647`."""

    retry_backoff_ms: int
    """The pause before the first retry; it doubles. By default `100`."""

    retry_backoff_max_ms: int
    """The longest pause between two retries. By default `1000`."""

    delivery_timeout_ms: int
    """After this time a record has either been acknowledged or failed, retries included. By default `120000`."""

    request_timeout_ms: int
    """How long a broker may take to answer one request. By default `30000`."""

    linger_ms: int
    """How long a batch waits for more records before it is sent. By default `5`."""

    batch_size: int
    """The size at which a batch is sent at once; 0 sends each record alone. Memory is taken as records come. By default
    `131072`."""

    max_request_size: int
    """The largest request, and with it the largest record. By default `1048576`."""

    buffer_memory: int
    """Memory for records that are not acknowledged yet, over all partitions. By default `33554432`."""

    buffer_full: Literal["block", "fail", "drop", "spill"] | str
    """What `send()` does when that memory is full: wait, fail at once, drop and count, or keep it in the spool. By
    default `block`."""

    max_block_ms: int
    """How long `send()` may wait for memory or for metadata. By default `60000`."""

    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | str
    """How batches are compressed. By default `none`."""

    compression_gzip_level: int
    """1 (fast) to 9 (small); -1 is gzip's own default, 6. By default `-1`."""

    compression_lz4_level: int
    """As in Kafka, the default means lz4's fast mode. By default `9`."""

    compression_zstd_level: int
    """Lower is faster, higher is smaller. By default `3`."""

    partitioner: (
        Literal[
            "murmur2",
            "round_robin",
            "sticky",
            "consistent",
            "consistent_random",
            "fnv1a",
            "fnv1a_random",
            "murmur2_random",
            "random",
        ]
        | str
        | Callable[..., int]
    )
    """Where a record without a partition goes. `murmur2`: by its key, as Kafka's clients do; without one, to a
    partition that is kept for a batch. `round_robin`: by its key; without one, to the next partition. `sticky`: to a
    partition that is kept for a batch, whatever the key. `consistent_random`, confluent-kafka's default, and
    `consistent`, `fnv1a`, `fnv1a_random` are librdkafka's: a key goes where it has always gone. Its `murmur2_random` is
    `murmur2` here, its `random` is `sticky`. `partitioner.class` is understood too. By default `murmur2`."""

    partitioner_ignore_keys: bool
    """Choose as if no record had a key. `sticky` implies it, and so does Kafka's `RoundRobinPartitioner`. By default
    `false`."""

    partitioner_adaptive_partitioning_enable: bool
    """Without a key, prefer partitions whose records leave sooner. By default `true`."""

    key_serializer: Any
    """How a key becomes bytes; `auto` takes bytes as they are and text as UTF-8. By default `auto`."""

    value_serializer: Any
    """How a value becomes bytes; `auto` takes bytes as they are and text as UTF-8. By default `auto`."""

    interceptors: Iterable[Any]
    """See or change records before they leave, and see their results. `interceptor.classes` is understood too."""

    metadata_max_age_ms: int
    """How old knowledge of leaders may become before it is asked for again. By default `300000`."""

    metadata_max_idle_ms: int
    """After this time without a record, a topic's metadata is forgotten. By default `300000`."""

    reconnect_backoff_ms: int
    """The pause before the first reconnect; it doubles. By default `50`."""

    reconnect_backoff_max_ms: int
    """The longest pause between two reconnects. By default `1000`."""

    socket_connection_setup_timeout_ms: int
    """How long one connection may take; it doubles with every failure in a row. By default `10000`."""

    socket_connection_setup_timeout_max_ms: int
    """The longest that it may grow to. By default `30000`."""

    connections_max_idle_ms: int
    """After this time without a request a connection is closed; -1 for never. By default `540000`."""

    send_buffer_bytes: int
    """The socket's send buffer; -1 leaves it alone. By default `-1`."""

    receive_buffer_bytes: int
    """The socket's receive buffer; -1 leaves it alone. By default `-1`."""

    security_protocol: str
    """TLS and SASL are not supported yet. By default `PLAINTEXT`."""

    transactional_id: str | None
    """The name under which transactions go on from one producer to its successor. Only one producer at a time may use
    it: a new one fences those before it."""

    transaction_timeout_ms: int
    """After this time without an end a transaction is aborted by its coordinator. Brokers allow 15 minutes at most,
    unless told otherwise. By default `60000`."""

    spool_dir: str | FolderPath | None
    """The folder of the durable spool; without it there is none."""

    spool_max_bytes: int
    """How large the spool may become on disk. By default `1073741824`."""

    spool_flush: Literal["none", "fsync"] | str
    """When a spooled record counts as kept: in the page cache, where it survives a crash of the process (`none`), or on
    the disk, where it survives one of the machine (`fsync`). By default `none`."""

    spool_unknown: Literal["refuse", "resend", "discard"] | str
    """After a restart: what to do with records of which nobody can tell any more whether the broker has them. By
    default `refuse`."""

    spool_positions_topic: str
    """With `transactional.id`: the compacted topic that keeps how far each spool is committed. It is created if it is
    missing. By default `oncelog-spool-positions`."""

    partitioner_class: (
        Literal[
            "murmur2",
            "round_robin",
            "sticky",
            "consistent",
            "consistent_random",
            "fnv1a",
            "fnv1a_random",
            "murmur2_random",
            "random",
        ]
        | str
        | Callable[..., int]
    )
    """Kafka's name of `partitioner`."""

    interceptor_classes: Iterable[Any]
    """Kafka's name of `interceptors`."""


class ConsumerSettings(TypedDict, total=False):
    """What `Consumer` and `AsyncConsumer` may be told."""

    client_id: str
    """The name under which brokers log, count and throttle this consumer. By default `oncelog-consumer`."""

    client_rack: str
    """Where this consumer is: a replica in the same rack is read from, if the brokers allow it."""

    group_id: str | None
    """The group whose members share the partitions and the committed offsets; without it there are neither."""

    group_instance_id: str | None
    """A name that outlives a restart: a member that comes back under it within its session keeps its partitions."""

    group_protocol: Literal["classic", "consumer"] | str
    """Who assigns partitions: a member of the group (`classic`), or the broker, without stopping the world (`consumer`,
    KIP-848). By default `classic`."""

    group_remote_assignor: str | None
    """With `group.protocol=consumer`: the broker's assignor, such as `uniform` or `range`; the broker's own choice if
    it is left out."""

    partition_assignment_strategy: str | Iterable[Any]
    """With `group.protocol=classic`: how partitions are shared, in the order of preference. All members must have one
    in common. By default `range,cooperative-sticky`."""

    session_timeout_ms: int
    """With `group.protocol=classic`: after this time without a heartbeat the group takes a member for dead. By default
    `45000`."""

    heartbeat_interval_ms: int
    """With `group.protocol=classic`: how often a member says that it lives. By default `3000`."""

    max_poll_interval_ms: int
    """After this time without a `poll()` the consumer leaves its group, and others get its partitions. By default
    `300000`."""

    max_poll_records: int
    """How many records one `poll()` returns at most. By default `500`."""

    auto_offset_reset: str
    """Where to begin if the group has committed no offset, or one that is gone: at the first record, after the last
    one, that long ago (`by_duration:PT1H`), or with an error (`none`). By default `latest`."""

    enable_auto_commit: bool
    """Commit in the background what earlier `poll()` calls returned. Off without `group.id`. By default `true`."""

    auto_commit_interval_ms: int
    """How often. By default `5000`."""

    isolation_level: Literal["read_uncommitted", "read_committed"] | str | IsolationLevel
    """`read_committed` shows transactional records once their transaction is committed, and aborted ones never. By
    default `read_uncommitted`."""

    fetch_min_bytes: int
    """A broker waits until it has as much, or for `fetch.max.wait.ms`. By default `1`."""

    fetch_max_wait_ms: int
    """How long a broker may wait for `fetch.min.bytes`. By default `500`."""

    fetch_max_bytes: int
    """How much a broker answers at once; its first batch comes even if it is larger. By default `52428800`."""

    max_partition_fetch_bytes: int
    """How much of it may be of one partition; its first batch comes even if it is larger. By default `1048576`."""

    fetch_queue_max_bytes: int
    """How many fetched bytes may wait for `poll()` before no more are asked for. By default `67108864`."""

    check_crcs: bool
    """Check that batches arrive as they were sent. By default `true`."""

    allow_auto_create_topics: bool
    """Let the broker create a topic that is subscribed to and does not exist, if it is set up to. Otherwise a misspelt
    name is a WARNING. By default `false`."""

    exclude_internal_topics: bool
    """A pattern matches no internal topic, such as `__consumer_offsets`. By default `true`."""

    key_deserializer: Any
    """What a key's bytes become. By default `bytes`."""

    value_deserializer: Any
    """What a value's bytes become. By default `bytes`."""

    interceptors: Iterable[Any]
    """See or change records before `poll()` returns them, and see what is committed. `interceptor.classes` is
    understood too."""

    default_api_timeout_ms: int
    """How long a call may take that was given no time of its own, with all its retries. By default `60000`."""

    request_timeout_ms: int
    """How long a broker may take to answer one request. By default `30000`."""

    retry_backoff_ms: int
    """The pause before the first retry; it doubles. By default `100`."""

    retry_backoff_max_ms: int
    """The longest pause between two retries. By default `1000`."""

    metadata_max_age_ms: int
    """How old knowledge of leaders may become before it is asked for again, and how late a new topic that matches a
    pattern is noticed at most. By default `300000`."""

    reconnect_backoff_ms: int
    """The pause before the first reconnect; it doubles. By default `50`."""

    reconnect_backoff_max_ms: int
    """The longest pause between two reconnects. By default `1000`."""

    socket_connection_setup_timeout_ms: int
    """How long one connection may take; it doubles with every failure in a row. By default `10000`."""

    socket_connection_setup_timeout_max_ms: int
    """The longest that it may grow to. By default `30000`."""

    connections_max_idle_ms: int
    """After this time without a request a connection is closed; -1 for never. By default `540000`."""

    send_buffer_bytes: int
    """The socket's send buffer; -1 leaves it alone. By default `-1`."""

    receive_buffer_bytes: int
    """The socket's receive buffer; -1 leaves it alone. By default `-1`."""

    security_protocol: str
    """TLS and SASL are not supported yet. By default `PLAINTEXT`."""

    interceptor_classes: Iterable[Any]
    """Kafka's name of `interceptors`."""


class AdminSettings(TypedDict, total=False):
    """What `Admin` may be told."""

    client_id: str
    """The name under which brokers log, count and throttle this client. By default `oncelog`."""

    socket_connection_setup_timeout_ms: int
    """How long one connection may take. By default `10000`."""

    request_timeout_ms: int
    """How long one request may take. By default `30000`."""

    default_api_timeout_ms: int
    """How long one call may take, with all its retries. By default `60000`."""

    retry_backoff_ms: int
    """The pause before the first retry; it doubles. By default `100`."""

    retry_backoff_max_ms: int
    """The longest pause between two retries. By default `1000`."""

    security_protocol: str
    """TLS and SASL are not supported yet. By default `PLAINTEXT`."""
