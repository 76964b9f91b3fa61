"""What people bring along from other clients of Kafka, and what to do about it here: every setting of librdkafka
(confluent-kafka), kafka-python and aiokafka, and of Kafka's own clients, that has another name here, or none.

A table that only mistakes need: it is imported when one was made. A test goes through the names that those libraries
have, so that none is missing. `*` at the end of a key stands for all that begins so.
"""

from __future__ import annotations

from collections.abc import Mapping

LEAVE_OUT = "leave this out"

_NO_TLS = f"there is no TLS and no SASL yet; connect to a PLAINTEXT listener of the broker and {LEAVE_OUT}"
_NO_JAVA = f"it configures the Java virtual machine; {LEAVE_OUT}"
_NO_C = f"it is for programs in C; {LEAVE_OUT}"
_NO_PROXY = f"clients connect directly; {LEAVE_OUT}"
_NO_REGISTRY = "there is no client of a schema registry; give a function or an object as {serializer}"
_LOG = 'what goes on is told to Python\'s logging: logging.getLogger("oncelog")'
_VERSIONS = f"versions are agreed upon with each broker; {LEAVE_OUT}"
_ADDRESSES = f"a broker's name is looked up for each connection, and every address of it is tried; {LEAVE_OUT}"
_ONE_MAPPING = "there is one mapping of settings; move what is in it to the others"

_EVERYWHERE = {
    # Kafka's own.
    "ssl.*": _NO_TLS,
    "sasl.*": _NO_TLS,
    "security.providers": _NO_JAVA,
    "config.providers": _NO_JAVA,
    "client.dns.lookup": _ADDRESSES,
    "metadata.recovery.*": f"bootstrap.servers are asked again whenever no known broker answers; {LEAVE_OUT}",
    # librdkafka's, and those of confluent-kafka.
    "enable.ssl.certificate.verification": _NO_TLS,
    "enable.sasl.oauthbearer.unsecure.jwt": _NO_TLS,
    "oauthbearer_token_refresh_cb": _NO_TLS,
    "oauth_cb": _NO_TLS,
    "https.ca.*": _NO_TLS,
    "metadata.broker.list": "use bootstrap.servers",
    "socket.timeout.ms": "use request.timeout.ms",
    "error_cb": "errors are raised by the call that they concern, {errors}; trouble with brokers is logged:"
    ' logging.getLogger("oncelog")',
    "logger": f"{_LOG}.addHandler(...)",
    "log_cb": f"{_LOG}.addHandler(...)",
    "log_level": f"{_LOG}.setLevel(logging.WARNING)",
    "debug": f"{_LOG}.setLevel(logging.DEBUG)",
    "log.queue": f"{_LOG}; {LEAVE_OUT}",
    "log.thread.name": f"{_LOG}; {LEAVE_OUT}",
    "log.connection.close": f"{_LOG}; {LEAVE_OUT}",
    "api.version.*": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "broker.address.*": _ADDRESSES,
    "socket.nagle.disable": f"Nagle's algorithm is always off; {LEAVE_OUT}",
    "socket.keepalive.enable": f"a connection that is lost is noticed after request.timeout.ms; {LEAVE_OUT}",
    "socket.max.fails": f"a connection is closed with its first error; {LEAVE_OUT}",
    "socket.blocking.max.ms": f"every wait has a limit of its own; {LEAVE_OUT}",
    "reconnect.backoff.jitter.ms": f"pauses vary by themselves; {LEAVE_OUT}",
    "receive.message.max.bytes": f"an answer is as large as was asked for; {LEAVE_OUT}",
    "message.copy.max.bytes": f"a record is copied once, whatever its size; {LEAVE_OUT}",
    "topic.metadata.refresh.fast.*": f"a topic without a leader is asked for again after retry.backoff.ms; {LEAVE_OUT}",
    "topic.metadata.refresh.sparse": f"only topics that are used are asked for; {LEAVE_OUT}",
    "topic.blacklist": f"no topic is used that was not asked for; {LEAVE_OUT}",
    "default.topic.config": _ONE_MAPPING,
    "default_topic_conf": _ONE_MAPPING,
    "plugin.library.paths": _NO_C,
    "builtin.features": _NO_C,
    "enabled_events": _NO_C,
    "enable.random.seed": _NO_C,
    "internal.termination.signal": _NO_C,
    "background_event_cb": _NO_C,
    "socket_cb": _NO_C,
    "connect_cb": _NO_C,
    "closesocket_cb": _NO_C,
    "open_cb": _NO_C,
    "resolve_cb": _NO_C,
    "opaque": _NO_C,
    "schema.registry.*": _NO_REGISTRY,
    "auto.register.schemas": _NO_REGISTRY,
    # kafka-python's and aiokafka's.
    "api_version": _VERSIONS,
    "socks5_proxy": _NO_PROXY,
    "proxy_url": _NO_PROXY,
    "kafka_client": f"each client has connections of its own; {LEAVE_OUT}",
    "selector": f"it is chosen for the platform; {LEAVE_OUT}",
    "loop": f"the event loop that runs is used; {LEAVE_OUT}",
}

_NO_REPORTERS = f"nothing is reported to brokers or JMX; {LEAVE_OUT}, read {{client}}.metrics() or use Prometheus"
_BUFFERS = "use send.buffer.bytes and receive.buffer.bytes; Nagle's algorithm is always off"

_WITH_A_THREAD = {
    "metric.reporters": _NO_REPORTERS,
    "metric_group_prefix": _NO_REPORTERS,
    "metrics.*": _NO_REPORTERS,
    "enable.metrics.push": _NO_REPORTERS,
    "stats_cb": "call {client}.metrics() whenever you want to know, or use Prometheus (oncelog.prometheus_collector)",
    "statistics.interval.ms": "call {client}.metrics() whenever you want to know, or use Prometheus"
    " (oncelog.prometheus_collector)",
    "throttle_cb": 'see {client}.metrics()["{throttle}-throttle-time-avg"]',
    "topic.metadata.refresh.interval.ms": "use metadata.max.age.ms",
    "socket.send.buffer.bytes": "use send.buffer.bytes, with -1 in the place of 0",
    "socket.receive.buffer.bytes": "use receive.buffer.bytes, with -1 in the place of 0",
    "socket_options": _BUFFERS,
}
"""Of producers and consumers, which work in the background."""

_ORDER = f"records of a partition leave in the order of send(); {LEAVE_OUT}"
_PER_RECORD = (
    "give it to send(..., on_delivery=...), which calls it with (metadata, error), or give an interceptor with"
    " on_acknowledgement(metadata, error) as interceptors, for all records"
)

_OF_PRODUCERS = {
    # Kafka's own.
    "partitioner.availability.timeout.ms": f"partitions without a leader are avoided at once; {LEAVE_OUT}",
    "default.api.timeout.ms": "use max.block.ms, or give the call a timeout",
    "transaction.two.phase.commit.enable": f"use Producer.prepare(), which needs no setting; {LEAVE_OUT}",
    # librdkafka's, and those of confluent-kafka.
    "message.timeout.ms": "use delivery.timeout.ms",
    "queue.buffering.max.ms": "use linger.ms",
    "queue.buffering.max.kbytes": "use buffer.memory, in bytes",
    "queue.buffering.max.messages": "memory is bounded in bytes; use buffer.memory",
    "queue.buffering.backpressure.threshold": "batches grow while a broker is busy; use linger.ms",
    "batch.num.messages": "batches are bounded in bytes; use batch.size",
    "message.max.bytes": "use max.request.size",
    "message.send.max.retries": "use retries, or better delivery.timeout.ms",
    "request.required.acks": "use acks",
    "max.in.flight": "use max.in.flight.requests.per.connection",
    "compression.codec": "use compression.type",
    "compression.level": "use compression.gzip.level, compression.lz4.level or compression.zstd.level",
    "sticky.partitioning.linger.ms": f"a partition is kept for a batch; use linger.ms and batch.size, and {LEAVE_OUT}",
    "partitioner_cb": "use partitioner, with a function of (topic, key, value, number of partitions)",
    "on_delivery": _PER_RECORD,
    "dr_cb": _PER_RECORD,
    "dr_msg_cb": _PER_RECORD,
    "delivery.report.only.error": "on_delivery(metadata, error) is called for each record; look at its error",
    "produce.offset.report": f"a record's result always has its offset; {LEAVE_OUT}",
    "enable.gapless.guarantee": "records that must be stored together belong into a transaction; use transactional.id",
    "queuing.strategy": _ORDER,
    "msg_order_cmp": _ORDER,
    "topic.metadata.propagation.max.ms": "use max.block.ms, which is how long send() waits for a topic",
    # kafka-python's and aiokafka's.
    "max_batch_size": "use batch.size",
    "bootstrap_timeout_ms": "use max.block.ms, which is how long send() waits for a topic, and so for a broker",
    "allow_auto_create_topics": f"the broker decides, by its auto.create.topics.enable; {LEAVE_OUT}",
}

_SUBSCRIBE = "call subscribe(topics)"
_KEPT_BY_THE_GROUP = "offsets are kept by the group: commit(), or leave enable.auto.commit on"

_OF_CONSUMERS = {
    # Kafka's own.
    "share.*": f"there are no share groups; {LEAVE_OUT}",
    # librdkafka's, and those of confluent-kafka.
    "enable.auto.offset.store": "set enable.auto.commit=false and commit() what was processed",
    "enable.partition.eof": "compare position() with end_offsets(), or look at lag()",
    "fetch.error.backoff.ms": "use retry.backoff.ms",
    "fetch.message.max.bytes": "use max.partition.fetch.bytes",
    "fetch.wait.max.ms": "use fetch.max.wait.ms",
    "fetch.queue.backoff.ms": f"fetching goes on as soon as there is room; use fetch.queue.max.bytes, and {LEAVE_OUT}",
    "queued.max.messages.kbytes": "use fetch.queue.max.bytes, in bytes",
    "queued.min.messages": "what waits is bounded in bytes; use fetch.queue.max.bytes",
    "auto.commit.enable": "use enable.auto.commit",
    "offset.store.*": _KEPT_BY_THE_GROUP,
    "rebalance_cb": "call subscribe(topics, on_assigned=..., on_revoked=..., on_lost=...)",
    "on_commit": "give it to commit_async(on_commit=...), which calls it with (offsets, error)",
    "offset_commit_cb": "give it to commit_async(on_commit=...), which calls it with (offsets, error)",
    "consume_cb": "poll() returns the records",
    "consume.callback.max.messages": "use max.poll.records",
    "coordinator.query.interval.ms": f"the group's coordinator is asked for when it has moved; {LEAVE_OUT}",
    "group.protocol.type": f"it is always consumer; {LEAVE_OUT}",
    "topic.blacklist": "call subscribe() with a pattern that leaves these topics out",
    "topic.metadata.propagation.max.ms": f"a topic that is missing is waited for; {LEAVE_OUT}",
    "message.max.bytes": "use fetch.max.bytes",
    "max.in.flight": f"a broker gets one fetch at a time; {LEAVE_OUT}",
    # kafka-python's and aiokafka's.
    "max_in_flight_requests_per_connection": f"a broker gets one fetch at a time; {LEAVE_OUT}",
    "consumer_timeout_ms": "call poll(timeout), with seconds: iterating waits without end",
    "rebalance_timeout_ms": "use max.poll.interval.ms",
    "default_offset_commit_callback": "give it to commit_async(on_commit=...), which calls it with (offsets, error)",
    "enable_incremental_fetch_sessions": f"they are used wherever the broker has them; {LEAVE_OUT}",
    "bootstrap_timeout_ms": "use default.api.timeout.ms, or give the call a timeout",
    "topic": _SUBSCRIBE,
    "topics": _SUBSCRIBE,
}

_NOT_KEPT = f"an Admin keeps no statistics; {LEAVE_OUT}"

_OF_ADMINS = {
    "bootstrap.controllers": "use bootstrap.servers; brokers pass on what is for a controller",
    "retries": "use default.api.timeout.ms, which bounds them",
    "metric.reporters": _NOT_KEPT,
    "metrics.*": _NOT_KEPT,
    "enable.metrics.push": _NOT_KEPT,
    "stats_cb": _NOT_KEPT,
    "statistics.interval.ms": _NOT_KEPT,
    "throttle_cb": _NOT_KEPT,
    "topic.metadata.refresh.interval.ms": f"metadata is asked for when it is needed; {LEAVE_OUT}",
    "topic.metadata.propagation.max.ms": "create_topic() returns when every broker knows the topic; use"
    " default.api.timeout.ms",
    "socket.send.buffer.bytes": f"the system chooses; {LEAVE_OUT}",
    "socket.receive.buffer.bytes": f"the system chooses; {LEAVE_OUT}",
    "socket_options": f"the system chooses; {LEAVE_OUT}",
    "max.in.flight": f"an Admin asks one thing at a time; {LEAVE_OUT}",
    "max_in_flight_requests_per_connection": f"an Admin asks one thing at a time; {LEAVE_OUT}",
    "message.max.bytes": f"no request of an Admin is large; {LEAVE_OUT}",
    "bootstrap_timeout_ms": "use default.api.timeout.ms",
}

_TABLES: dict[str, tuple[dict[str, str], Mapping[str, str]]] = {
    "producer": (
        {**_EVERYWHERE, **_WITH_A_THREAD, **_OF_PRODUCERS},
        {
            "errors": "and by the record's result",
            "throttle": "produce",
            "serializer": "key.serializer or value.serializer",
        },
    ),
    "consumer": (
        {**_EVERYWHERE, **_WITH_A_THREAD, **_OF_CONSUMERS},
        {"errors": "such as poll()", "throttle": "fetch", "serializer": "key.deserializer or value.deserializer"},
    ),
    "admin": (
        {**_EVERYWHERE, **_OF_ADMINS},
        {"errors": "each with a class of its own", "serializer": "the serializer of a producer"},
    ),
}


def remedies(client: str) -> dict[str, str]:
    """What to do about each setting that is no setting of our producer, consumer or admin."""
    table, words = _TABLES[client]
    return {key: remedy.format(client=client, **words) for key, remedy in table.items()}


def remedy(client: str, name: str) -> str | None:
    """`name` is the key with underscores. None for one that nobody has: it is a mistake of the user's own."""
    for key, text in remedies(client).items():
        known = key.replace(".", "_")
        if name == known or (known.endswith("*") and name.startswith(known[:-1])):
            return text
    return _of_another(client, name)


def _of_another(client: str, name: str) -> str | None:
    """For programs that share one mapping among their clients: what is a setting of the others has no effect here."""
    known = _names()
    owners = [f"{other}s" for other, names in known.items() if name in names]
    if not owners:
        return None
    for part, counterpart in (("_serializer", "_deserializer"), ("_deserializer", "_serializer")):
        twin = name.removesuffix(part) + counterpart
        if name.endswith(part) and twin in known[client]:
            return f"it is a setting of {' and '.join(owners)}; use {twin.replace('_', '.')}"
    return f"it is a setting of {' and '.join(owners)}; {LEAVE_OUT}"


def _names() -> dict[str, set[str]]:
    """What our clients may be told."""
    from oncelog.client import consumer_config, producer_config
    from oncelog.client.config import ClientConfig
    from oncelog.client.settings import kinds_of

    return {
        "producer": {*kinds_of(producer_config.ProducerConfig), *producer_config.ALSO},
        "consumer": {*kinds_of(consumer_config.ConsumerConfig), *consumer_config.ALSO},
        "admin": {*kinds_of(ClientConfig)},
    }
