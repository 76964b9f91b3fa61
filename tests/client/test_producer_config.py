"""Each decision about contradictions that the module's docstring states, and what a user reads in each case."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.producer_config import ACKS_ALL, ProducerConfig
from oncelog.client.settings import MAX_INT
from oncelog.errors import InvalidConfig
from oncelog.records import compression

IN_FLIGHT = "max_in_flight_requests_per_connection"
SPOOLED = {"spool_dir": "folder"}


def made(**settings: Any) -> ProducerConfig:
    return ProducerConfig.of("a:1", **settings)


def changed(**settings: Any) -> dict[str, Any]:
    """What is not as it is by default."""
    config, default = made(**settings), made()
    pairs = ((each.name, getattr(config, each.name)) for each in fields(config))
    return {name: value for name, value in pairs if value != getattr(default, name)}


def refusal(**settings: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        made(**settings)
    return caught.value.message


def test_the_defaults_are_themselves_allowed() -> None:
    """What a user reads in the table may be written down without changing anything."""
    default = made()
    given = {each.name: getattr(default, each.name) for each in fields(default)}
    given["bootstrap_servers"] = "a:1"
    for name in ("spool_max_bytes", "spool_flush", "spool_unknown", "spool_positions_topic"):  # need a spool
        del given[name]
    assert ProducerConfig.of(given) == default


def test_keys_as_pasted_from_kafkas_documentation() -> None:
    pasted = {
        "bootstrap.servers": "a:1,b:2",
        "acks": "all",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "3",
        "linger.ms": "20",
        "compression.type": "lz4",
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
        "partitioner.ignore.keys": "false",
        "partitioner.adaptive.partitioning.enable": "false",
    }
    by_argument = ProducerConfig.of(
        "a:1,b:2",
        max_in_flight_requests_per_connection=3,
        linger_ms=20,
        compression_type="lz4",
        key_serializer="str",
        value_serializer="bytes",
        partitioner_adaptive_partitioning_enable=False,
    )
    assert ProducerConfig.of(pasted) == by_argument


# --- idempotence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "acks"), [("all", -1), ("ALL", -1), (-1, -1), ("-1", -1), (1, 1), ("0", 0), (0, 0)])
def test_acks_alone_decides_about_idempotence(given: object, acks: int) -> None:
    config = made(acks=given)
    assert config.acks == acks
    assert config.enable_idempotence is (acks == ACKS_ALL)


@pytest.mark.parametrize(("acks", "harm"), [(1, "a leader that fails may take acknowledged"), (0, "does not confirm")])
def test_less_than_all_acks_is_told_of_once_unless_it_is_meant(
    acks: int, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = f"billing with acks {acks}"
    made(client_id=client, acks="all")
    made(client_id=client, acks=acks, enable_idempotence=False)
    assert caplog.records == []
    for _ in range(3):
        made(client_id=client, acks=acks)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"{client}: acks is {acks}, so idempotence is off: ")
    assert harm in record.getMessage()
    assert "set enable.idempotence=false as well" in record.getMessage()


@pytest.mark.parametrize("acks", [2, -2, "one", None, True, 1.5])
def test_other_acks_are_refused(acks: object) -> None:
    assert refusal(acks=acks) == f"acks is all (or -1), 1 or 0, not {acks!r}"


@pytest.mark.parametrize("acks", [0, 1])
def test_less_than_all_acks_contradicts_idempotence_that_was_asked_for(acks: int) -> None:
    said = refusal(acks=acks, enable_idempotence=True)
    assert said.startswith(f"acks is {acks}, but enable.idempotence is true")
    assert "set acks=all, or set enable.idempotence=false" in said


@pytest.mark.parametrize("explicit", [{}, {"enable_idempotence": True}])
def test_idempotence_allows_five_requests_in_flight(explicit: dict[str, Any]) -> None:
    assert made(**{IN_FLIGHT: 5}, **explicit).enable_idempotence
    said = refusal(**{IN_FLIGHT: 6}, **explicit)
    assert said.startswith("max.in.flight.requests.per.connection is 6, but ")
    assert "set it to at most 5, or set enable.idempotence=false" in said


@pytest.mark.parametrize("explicit", [{}, {"enable_idempotence": True}])
def test_idempotence_needs_retries_and_does_not_end_in_silence(explicit: dict[str, Any]) -> None:
    said = refusal(retries=0, **explicit)
    assert said.startswith("retries is 0, but ")
    assert "leave retries out (delivery.timeout.ms bounds them), or set enable.idempotence=false" in said


@pytest.mark.parametrize("less", [{"enable_idempotence": False}, {"acks": 1}, {"acks": 0}])
def test_without_idempotence_neither_limit_holds(less: dict[str, Any]) -> None:
    config = made(**{IN_FLIGHT: 100}, retries=0, **less)
    assert not config.enable_idempotence
    assert (config.max_in_flight_requests_per_connection, config.retries) == (100, 0)


def test_at_least_one_request_may_be_in_flight() -> None:
    assert refusal(**{IN_FLIGHT: 0}).endswith("is a whole number of at least 1, not 0")


# --- numbers that follow, and numbers that contradict -----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "follows"),
    [
        ({"request_timeout_ms": 200_000}, {"delivery_timeout_ms": 200_005}),
        ({"linger_ms": 100_000}, {"delivery_timeout_ms": 130_000}),
        ({"spool_dir": "spool"}, {"delivery_timeout_ms": 12 * 3_600_000}),
        ({"linger_ms": 50_000}, {}),
        ({"buffer_memory": 50_000}, {"max_request_size": 50_000, "batch_size": 50_000}),
        ({"buffer_memory": 500_000}, {"max_request_size": 500_000}),
        ({"max_request_size": 50_000}, {"batch_size": 50_000}),
        ({"retry_backoff_ms": 5_000}, {"retry_backoff_max_ms": 5_000}),
        ({"reconnect_backoff_ms": 5_000}, {"reconnect_backoff_max_ms": 5_000}),
        ({"socket_connection_setup_timeout_ms": 60_000}, {"socket_connection_setup_timeout_max_ms": 60_000}),
    ],
)
def test_a_number_that_was_not_given_follows(given: dict[str, int], follows: dict[str, int]) -> None:
    assert changed(**given) == given | follows


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"delivery_timeout_ms": 1_000},
            "delivery.timeout.ms (1000) is less than linger.ms (5) + request.timeout.ms (30000), so that not even one"
            " attempt fits: raise delivery.timeout.ms to at least 30005, or lower the other two",
        ),
        (
            {"max_request_size": 2_000, "buffer_memory": 1_000},
            "max.request.size (2000) is larger than buffer.memory (1000): raise buffer.memory to at least 2000, or"
            " lower max.request.size to at most 1000",
        ),
        (
            {"batch_size": 2_000_000},
            "batch.size (2000000) is larger than max.request.size (1048576): raise max.request.size to at least"
            " 2000000, or lower batch.size to at most 1048576",
        ),
        (
            {"retry_backoff_ms": 2_000, "retry_backoff_max_ms": 1_000},
            "retry.backoff.ms (2000) is larger than retry.backoff.max.ms (1000): raise retry.backoff.max.ms to at"
            " least 2000, or lower retry.backoff.ms to at most 1000",
        ),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(given: dict[str, int], said: str) -> None:
    assert refusal(**given) == said


def test_a_delivery_that_fits_exactly_is_allowed() -> None:
    assert made(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_times_that_travel_as_32_bits_are_bounded() -> None:
    assert "of at most 2147483647" in refusal(request_timeout_ms=MAX_INT + 1)
    assert made(max_block_ms=2**63 - 1).max_block_ms == 2**63 - 1


# --- the spool --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"buffer_full": "spill"}, "buffer.full=spill"),
        ({"spool_flush": "fsync"}, "spool.flush"),
        ({"spool_max_bytes": 1}, "spool.max.bytes"),
        ({"spool_unknown": "resend"}, "spool.unknown"),
    ],
)
def test_what_is_said_of_a_spool_needs_one(given: dict[str, Any], named: str) -> None:
    assert refusal(**given) == f"{named} needs a spool: set spool.dir to a folder, or leave {named} out"
    assert changed(**given, **SPOOLED).items() >= (given | SPOOLED).items()


def test_a_spool_is_a_folder() -> None:
    assert made(spool_dir=Path("there")).spool_dir == "there"
    assert made(spool_dir=None).spool_dir is None
    assert refusal(spool_dir="") == "spool.dir is the path of a folder, not ''"
    assert refusal(spool_dir=b"there") == "spool.dir is the path of a folder, not b'there'"


@pytest.mark.parametrize("less", [{"acks": 1}, {"enable_idempotence": False}])
def test_a_spool_needs_idempotence(less: dict[str, Any]) -> None:
    assert "set acks=all and leave enable.idempotence on, or leave spool.dir out" in refusal(**less, **SPOOLED)


def test_positions_are_for_a_spool_that_sends_in_transactions() -> None:
    both = {**SPOOLED, "spool_positions_topic": "positions"}
    assert made(**both, transactional_id="shop-1").spool_positions_topic == "positions"
    assert "set transactional.id, or leave spool.positions.topic out" in refusal(**both)
    assert "spool.positions.topic needs a spool" in refusal(spool_positions_topic="positions")
    for wrong in ("", "no topic", 7):
        assert "is the name of a topic" in refusal(**{**both, "spool_positions_topic": wrong})


# --- partitioners, serializers, interceptors --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "chosen", "ignores_keys"),
    [
        ({}, "murmur2", False),
        ({"partitioner": "murmur2_random"}, "murmur2", False),
        ({"partitioner_ignore_keys": "true"}, "murmur2", True),
        ({"partitioner": "sticky"}, "sticky", True),
        ({"partitioner": "round_robin"}, "round_robin", False),
        ({"partitioner": "round_robin", "partitioner_ignore_keys": True}, "round_robin", True),
        ({"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}, "round_robin", True),
        ({"partitioner.class": "org.apache.kafka.clients.producer.UniformStickyPartitioner"}, "sticky", True),
    ],
)
def test_partitioners(given: dict[str, Any], chosen: str, ignores_keys: bool) -> None:
    config = made(**given)
    assert (config.partitioner, config.partitioner_ignore_keys) == (chosen, ignores_keys)


def test_a_users_own_partitioner() -> None:
    def first(topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        return 0

    assert made(partitioner=first).partitioner is first


def test_a_partitioner_that_ignores_keys_cannot_be_told_not_to() -> None:
    said = refusal(partitioner="sticky", partitioner_ignore_keys=False)
    assert said.startswith("partitioner sticky never looks at keys, but partitioner.ignore.keys is false")


@pytest.mark.parametrize("given", ["com.example.Own", "stick", 7])
def test_a_partitioner_that_does_not_exist(given: object) -> None:
    said = refusal(partitioner=given)
    assert said.startswith("partitioner is one of murmur2, round_robin, sticky")
    assert repr(given) in said
    assert "a function of (topic, key, value, number of partitions)" in said


class Reverse:
    def serialize(self, topic: str, value: Any) -> bytes:
        return bytes(reversed(value))


@pytest.mark.parametrize("part", ["key_serializer", "value_serializer"])
def test_serializers(part: str) -> None:
    assert getattr(made(), part) == "auto"
    java = "org.apache.kafka.common.serialization"
    for given, chosen in [("JSON", "json"), (f"{java}.IntegerSerializer", "int32"), (f"{java}.LongSerializer", "int")]:
        assert getattr(made(**{part: given}), part) == chosen
    for own in (str.encode, Reverse()):
        assert getattr(made(**{part: own}), part) is own


class OfKafkaPython:
    def serialize(self, topic: str, headers: object, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"value_serializer": OfKafkaPython()},
            "value.serializer.serialize is called as (topic, value), but this one takes (topic, headers, data): give a"
            " function of the value, or an object with `serialize(topic, value)`",
        ),
        (
            {"key.serializer": lambda obj, ctx: obj},
            "key.serializer is called as (key), but this one takes (obj, ctx): give a function of the key, or an"
            " object with `serialize(topic, key)`",
        ),
        (
            {"partitioner": lambda key, all_partitions, available: 0},
            "partitioner is called as (topic, key, value, number of partitions), but this one takes (key,"
            " all_partitions, available): give a function of (topic, key, value, number of partitions) that returns a"
            " partition",
        ),
    ],
)
def test_functions_of_other_libraries_are_called_otherwise(settings: dict[str, Any], said: str) -> None:
    assert refusal(**settings) == said


def test_what_may_take_more_is_taken() -> None:
    assert callable(made(key_serializer=lambda obj, ctx=None: obj).key_serializer)


def test_bytes_need_no_serializer_where_both_are_left_alone() -> None:
    assert made().takes_bytes
    assert not made(key_serializer="str").takes_bytes
    assert not made(value_serializer=str.encode).takes_bytes


@pytest.mark.parametrize("given", ["jsn", "org.apache.kafka.common.serialization.VoidSerializer", 7])
def test_a_serializer_that_does_not_exist(given: object) -> None:
    said = refusal(value_serializer=given)
    assert said.startswith("value.serializer is one of auto, bytes, str, int")
    assert repr(given) in said
    assert "a function of the value, or an object with `serialize(topic, value)`" in said


class Counting:
    def on_acknowledgement(self, metadata: object, error: object) -> None: ...


def test_interceptors() -> None:
    counting = Counting()
    assert made(interceptors=[counting]).interceptors == (counting,)
    assert made(**{"interceptor.classes": (Counting,)}).interceptors == (Counting,)
    for given in ("com.example.Own", Counting(), [object()], ["com.example.Own"]):
        assert refusal(interceptors=given).startswith("interceptors is a list of objects (or classes) with")


# --- the rest ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "codec", "level"),
    [
        ({}, compression.NONE, None),
        ({"compression_type": "snappy"}, compression.SNAPPY, None),
        ({"compression_type": "gzip"}, compression.GZIP, None),
        ({"compression_type": "gzip", "compression_gzip_level": 1}, compression.GZIP, 1),
        ({"compression_type": "lz4"}, compression.LZ4, None),
        ({"compression_type": "lz4", "compression_lz4_level": 2}, compression.LZ4, 2),
        ({"compression_type": "zstd", "compression_gzip_level": 1}, compression.ZSTD, 3),
        ({"compression_type": "ZSTD", "compression_zstd_level": "-5"}, compression.ZSTD, -5),
    ],
)
def test_compression(given: dict[str, Any], codec: int, level: int | None) -> None:
    config = made(**given)
    assert (config.compression_codec, config.compression_level) == (codec, level)


def test_a_transactional_id_is_a_name_and_needs_idempotence() -> None:
    assert made(transactional_id="me").transactional_id == "me"
    assert made(transactional_id=None).transactional_id is None
    assert "a non-empty string" in refusal(transactional_id="")
    assert "a non-empty string" in refusal(transactional_id=7)
    assert "transactional.id needs idempotence" in refusal(transactional_id="me", acks=1)
    assert "transactional.id needs idempotence" in refusal(transactional_id="me", enable_idempotence=False)
    assert "use Producer.prepare()" in refusal(transaction_two_phase_commit_enable=True)


def test_what_does_not_exist_yet_is_refused_clearly() -> None:
    assert "connect to a PLAINTEXT listener" in refusal(security_protocol="SASL_SSL")
    assert "connect to a PLAINTEXT listener" in refusal(**{"ssl.truststore.location": "x"})
    assert made(security_protocol="plaintext").security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("message.timeout.ms", ": use delivery.timeout.ms"),
        ("queue.buffering.max.ms", ": use linger.ms"),
        ("max_batch_size", ": use batch.size"),
        ("linger", "; did you mean linger.ms?"),
        ("max.in.flight", ": use max.in.flight.requests.per.connection"),
        ("interceptor.class", "; did you mean interceptor.classes?"),
        ("bufer_memory", "; did you mean buffer.memory?"),
    ],
)
def test_an_unknown_key_names_the_nearest_or_what_other_clients_call_it(key: str, remedy: str) -> None:
    assert refusal(**{key: 1}) == f"unknown setting {key}{remedy}"


def test_what_librdkafka_calls_ours_is_among_the_names() -> None:
    assert ProducerConfig.of("localhost:9092", partitioner="murmur2_random").partitioner == "murmur2"
    assert ProducerConfig.of("localhost:9092", partitioner="RANDOM").partitioner == "sticky"
    said = refusal(partitioner="murmur")
    assert "murmur2_random, random, or a function of" in said
    assert said.endswith("not 'murmur'; did you mean murmur2?")


@pytest.mark.parametrize("name", ["retries", "linger_ms", "batch_size"])
def test_a_negative_number_is_told_the_least(name: str) -> None:
    assert "of at least 0, not -1" in refusal(**{name: -1})
