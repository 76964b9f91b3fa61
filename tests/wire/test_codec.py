from __future__ import annotations

import io
from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from oncelog.errors import UnsupportedVersion
from oncelog.wire.api import SUPPORTED, ApiKey, flexible
from oncelog.wire.codec import (
    MalformedMessage,
    Message,
    decode,
    decode_bounded,
    decode_exactly,
    encode,
    encoded_elements,
)
from oncelog.wire.encoder import EncodedTooLarge
from oncelog.wire.primitives import MAX_TAGGED_FIELDS, uvarint
from oncelog.wire.schema import ZERO_UUID, load_schema
from tests.support.sizes import examples
from tests.wire.kio_bridge import covers, kio_class, messages, plain_message, present_fields, same

EXAMPLES = 6

ALL_MESSAGES = [f"{key.schema_prefix}{kind}" for key in ApiKey for kind in ("Request", "Response")]
HEADERS = ["RequestHeader", "ResponseHeader"]
ALL_VERSIONS = [
    (name, version)
    for name in ALL_MESSAGES + HEADERS
    for version in range(load_schema(name).valid.lowest, load_schema(name).valid.highest + 1)
]


@pytest.mark.parametrize(("name", "version"), ALL_VERSIONS)
def test_kio_reads_what_we_write_and_writes_what_we_read(name: str, version: int) -> None:
    schema = load_schema(name)
    entity = kio_class(schema, version)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(messages(schema.fields, version, entity))
    def check(message: dict[str, object]) -> None:
        ours = encode(name, version, message)
        read, size = entity_reader(entity)(ours, 0)
        assert size == len(ours)
        assert same(schema.fields, version, message, read)
        buffer = io.BytesIO()
        entity_writer(entity)(buffer, read)
        theirs = buffer.getvalue()
        assert theirs == ours
        assert covers(decode_exactly(name, version, theirs), message)

    check()


@pytest.mark.parametrize("key", list(ApiKey))
def test_the_api_table_agrees_with_the_definitions(key: ApiKey) -> None:
    for kind in ("Request", "Response"):
        schema = load_schema(f"{key.schema_prefix}{kind}")
        assert schema.api_key == key
        for version in range(schema.valid.lowest, schema.valid.highest + 1):
            assert flexible(key, version) == schema.flexible.includes(version)
        if key in SUPPORTED and key != ApiKey.PRODUCE:
            assert SUPPORTED[key] == schema.valid


def test_the_unstable_version_of_a_definition_is_not_carried() -> None:
    assert load_schema("InitProducerIdRequest").valid.highest == 5


def test_fields_that_the_version_lacks_get_their_defaults() -> None:
    body = encode("FetchRequest", 4, {"max_wait_ms": 7, "topics": [{"topic": "a", "partitions": [{"partition": 3}]}]})
    message = decode_exactly("FetchRequest", 4, body)
    assert message["session_epoch"] == -1
    assert message["max_bytes"] == 0x7FFFFFFF
    assert message["rack_id"] == ""
    assert message["replica_state"] == {"replica_id": -1, "replica_epoch": -1}
    assert message["cluster_id"] is None
    partition = message["topics"][0]["partitions"][0]
    assert partition["current_leader_epoch"] == -1
    assert partition["high_watermark"] == 2**63 - 1
    assert message["topics"][0]["topic_id"] == ZERO_UUID


def test_defaults_are_not_shared_between_messages() -> None:
    body = encode("FetchRequest", 4, {})
    first, second = decode_exactly("FetchRequest", 4, body), decode_exactly("FetchRequest", 4, body)
    first["forgotten_topics_data"].append("mine")
    first["replica_state"]["replica_id"] = 5
    assert second["forgotten_topics_data"] == []
    assert second["replica_state"]["replica_id"] == -1


def test_missing_keys_are_defaults_and_fields_of_other_versions_are_left_out() -> None:
    sparse = encode("MetadataRequest", 1, {"topics": None, "include_topic_authorized_operations": True})
    assert sparse == b"\xff\xff\xff\xff"


def test_an_unknown_key_is_our_own_mistake() -> None:
    with pytest.raises(KeyError, match="topicz"):
        encode("MetadataRequest", 1, {"topicz": []})
    with pytest.raises(KeyError, match="MetadataRequestTopic has no field nam"):
        encode("MetadataRequest", 1, {"topics": [{"nam": "x"}]})


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(ValueError, match="topics may not be null in version 0"):
        encode("MetadataRequest", 0, {"topics": None})
    with pytest.raises(MalformedMessage, match="topics may not be null"):
        decode("MetadataRequest", 0, b"\xff\xff\xff\xff")


def test_a_version_outside_the_definition_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="0-13, not 14"):
        encode("MetadataRequest", 14, {})


def test_a_string_too_long_for_the_protocol_is_refused() -> None:
    for version in (1, 12):
        with pytest.raises(ValueError, match="at most 32767"):
            encode("MetadataRequest", version, {"topics": [{"name": "x" * 32768}]})


def test_a_compact_string_that_no_answer_could_repeat_is_refused() -> None:
    """Its length could say more than the protocol carries: Kafka refuses it as well."""
    longest = encode("FindCoordinatorRequest", 3, {"key": "x" * 32767, "key_type": 0})
    assert decode_exactly("FindCoordinatorRequest", 3, longest)["key"] == "x" * 32767
    longer = b"\x81\x80\x02" + b"x" * 32768 + b"\x00\x00"
    with pytest.raises(MalformedMessage, match="a string of 32768 bytes; the protocol carries at most 32767"):
        decode_exactly("FindCoordinatorRequest", 3, longer)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode("DescribeClusterRequest", 0, {"include_cluster_authorized_operations": True})
    assert plain == b"\x01\x00"
    with_unknown = b"\x01" + b"\x02" + b"\x09\x03abc" + b"\xc8\x01\x00"
    assert decode_exactly("DescribeClusterRequest", 0, with_unknown)["include_cluster_authorized_operations"] is True


def test_a_known_tagged_field_must_fill_its_size() -> None:
    replica_state = (5).to_bytes(4, "big") + (6).to_bytes(8, "big") + b"\x00"
    head = encode("FetchRequest", 15, {})[:-1]
    good = head + b"\x01\x01" + bytes([len(replica_state)]) + replica_state
    assert decode_exactly("FetchRequest", 15, good)["replica_state"] == {"replica_id": 5, "replica_epoch": 6}
    with pytest.raises(MalformedMessage, match="replica_state ends 1 bytes early"):
        decode("FetchRequest", 15, head + b"\x01\x01" + bytes([len(replica_state) + 1]) + replica_state + b"\x00")


def test_tagged_fields_with_default_values_are_left_out() -> None:
    assert encode("FetchRequest", 15, {"replica_state": {"replica_id": -1}}) == encode("FetchRequest", 15, {})


def test_bytes_left_over_are_refused() -> None:
    body = encode("MetadataRequest", 1, {"topics": []})
    message, end = decode("MetadataRequest", 1, body + b"!")
    assert (message["topics"], end) == ([], len(body))
    with pytest.raises(MalformedMessage, match="1 bytes are left over"):
        decode_exactly("MetadataRequest", 1, body + b"!")


def test_bytes_are_views_of_the_input() -> None:
    buffer = bytearray(encode("ProduceRequest", 9, _produce(b"batch")))
    records = decode_exactly("ProduceRequest", 9, buffer)["topic_data"][0]["partition_data"][0]["records"]
    assert isinstance(records, memoryview)
    records[0] = ord("B")
    assert b"Batch" in buffer


def _produce(records: bytes) -> dict[str, object]:
    return {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]}


# --- bytes that are not the message -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "garbage"),
    [
        ("MetadataRequest", 1, b"\x7f\xff\xff\xff"),  # two billion topics
        ("MetadataRequest", 9, b"\xff\xff\xff\xff\x0f" + b"\x00" * 40),
        ("MetadataRequest", 1, b"\x00\x00\x00\x01\x7f\xff"),  # a string longer than the rest
        ("MetadataRequest", 1, b"\x00\x00\x00\x01\xff\xfe"),  # a length of -2
        ("MetadataRequest", 1, b"\x80\x00\x00\x00"),
        ("MetadataRequest", 1, b"\x00\x00\x00\x01\x00\x02\xff\xff"),  # not UTF-8
        ("MetadataRequest", 9, b"\x01\x01\x01\x01\xff\xff\xff\xff\x0f\x00"),  # four billion tagged fields
        ("MetadataRequest", 9, b"\x01\x01\x01\x01\x01\x00\xff\xff\xff\xff\x0f"),  # a tagged field of 4 GiB
        ("MetadataRequest", 9, b"\xff\xff\xff\xff\xff\x0f"),  # a varint of six bytes
        ("MetadataRequest", 9, b"\xff\xff\xff\xff\x1f"),  # a varint of 33 bits
        ("ProduceRequest", 9, b"\x00\xff\xff\x00\x00\x00\x01\x02\x02t\x02\x00\x00\x00\x00\xff\xff\xff\xff\x0f"),
        ("ListOffsetsRequest", 1, b"\xff\xff\xff\xff\x20\x00\x00\x00" + b"\x00" * 64),
        ("JoinGroupRequest", 0, b"\x00\x01g\x00\x00\x00\x10\x00\x00\x00\x00\x7f\xff\xff\xff"),
        ("MetadataRequest", 1, b""),
    ],
)
def test_garbage_is_refused(name: str, version: int, garbage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_exactly(name, version, garbage)


@pytest.mark.parametrize(
    ("version", "garbage", "refusal"),
    [
        (1, b"\x7f\xff\xff\xff" + bytes(64), "an array of 2147483647 elements in 64 bytes"),
        (1, b"\x00\x00\x00\x21" + bytes(64), "an array of 33 elements in 64 bytes"),  # each takes two bytes at least
        (9, b"\xff\xff\xff\xff\x0f" + bytes(64), "an array of 4294967294 elements in 64 bytes"),
        (1, b"\x00\x00\x00\x01\x7f\xff" + bytes(64), "a string of 32767 bytes, 64 are left"),
        (9, b"\x01\x00\x00\x00\x01\x00\xff\xff\xff\xff\x0f", "4294967295 bytes announced at byte 11, 0 are left"),
    ],
)
def test_counts_and_lengths_are_refused_before_anything_is_read(version: int, garbage: bytes, refusal: str) -> None:
    with pytest.raises(MalformedMessage, match=refusal):
        decode("MetadataRequest", version, garbage)


@settings(max_examples=examples(1500), deadline=None, database=None)
@given(st.sampled_from(ALL_VERSIONS), st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_malformed_message(case: tuple[str, int], data: bytes) -> None:
    name, version = case
    try:
        message, end = decode(name, version, data)
    except MalformedMessage:
        return
    assert end <= len(data)
    assert plain_message(decode_exactly(name, version, data[:end])) == plain_message(message)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_truncation_is_refused(version: int) -> None:
    topic = {"name": "t", "topic_id": UUID(int=7), "partition_data": [{"index": 0, "records": b"0123456789"}]}
    body = encode("ProduceRequest", version, {"transactional_id": "x", "topic_data": [topic, topic]})
    for end in range(len(body)):
        with pytest.raises(MalformedMessage):
            decode("ProduceRequest", version, body[:end])


def test_present_fields_cover_every_definition() -> None:
    """A definition whose versions have no fields at all would make the comparison with kio say nothing."""
    empty = [
        name for name in ALL_MESSAGES if not present_fields(load_schema(name).fields, load_schema(name).valid.highest)
    ]
    assert empty == []


# --- well-formed requests that are made to cost memory ------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 9])
def test_the_elements_of_a_request_are_bounded(version: int) -> None:
    def read(count: int) -> Message:
        data = encode("MetadataRequest", version, {"topics": [{}] * count})
        return decode_bounded("MetadataRequest", version, data, 0, 10)

    assert len(read(10)["topics"]) == 10
    with pytest.raises(MalformedMessage, match="elements in one request"):
        read(11)


def test_nested_elements_count_together() -> None:
    def read(*partition_counts: int) -> Message:
        topics = [{"partition_indexes": [0] * count} for count in partition_counts]
        data = encode("DescribeProducersRequest", 0, {"topics": topics})
        return decode_bounded("DescribeProducersRequest", 0, data, 0, 10)

    assert len(read(4, 4)["topics"]) == 2
    with pytest.raises(MalformedMessage, match="elements in one request"):
        read(4, 5)


def test_what_has_fewer_bytes_than_it_may_have_elements_need_not_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("compiled a reader that counts")

    monkeypatch.setattr("oncelog.wire.codec._counting_reader", never)
    data = encode("MetadataRequest", 1, {"topics": [{}] * 3})
    assert len(decode_bounded("MetadataRequest", 1, data, 0, len(data))["topics"]) == 3
    with pytest.raises(AssertionError):
        decode_bounded("MetadataRequest", 1, data, 0, len(data) - 1)


@pytest.mark.parametrize("count", [MAX_TAGGED_FIELDS, MAX_TAGGED_FIELDS + 1])
def test_the_tagged_fields_of_a_struct_are_bounded(count: int) -> None:
    """Each takes two bytes and a microsecond."""
    data = b"\x01\x00\x00" + uvarint(count) + b"".join(bytes((100 + tag, 0)) for tag in range(count))
    if count <= MAX_TAGGED_FIELDS:
        assert decode_exactly("MetadataRequest", 12, data)["topics"] == []
    else:
        with pytest.raises(MalformedMessage, match=f"{count} tagged fields"):
            decode("MetadataRequest", 12, data)


def test_a_message_that_grows_too_large_is_not_encoded_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.wire.encoder.MAX_ENCODED_BYTES", 100)
    written: list[int] = []

    def groups() -> Iterator[Message]:
        for number in range(1_000):
            written.append(number)
            yield {"group_id": "x" * 20}

    class Groups(list[Message]):
        def __len__(self) -> int:
            return 1_000

        def __iter__(self) -> Iterator[Message]:
            return groups()

        def __bool__(self) -> bool:
            return True

    with pytest.raises(EncodedTooLarge, match="more than 100 bytes"):
        encode("DescribeGroupsResponse", 0, {"groups": Groups()})
    assert len(written) < 10


@pytest.mark.parametrize("version", [1, 4])
def test_elements_that_are_encoded_one_by_one(version: int) -> None:
    results = [{"resource_type": 2, "resource_name": name, "configs": [{"name": "a"}]} for name in ("x", "y")]
    pieces = encoded_elements("DescribeConfigsResponse", version, "results")
    for result in results:
        pieces.append(result)
    whole = encode("DescribeConfigsResponse", version, {"throttle_time_ms": 7, "results": results})
    assert encode("DescribeConfigsResponse", version, {"throttle_time_ms": 7, "results": pieces}) == whole


def test_elements_that_are_encoded_one_by_one_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.wire.encoder.MAX_ENCODED_BYTES", 100)
    pieces = encoded_elements("DescribeConfigsResponse", 4, "results")
    for _ in range(3):
        pieces.append({"resource_name": "x" * 20})
    with pytest.raises(EncodedTooLarge):
        pieces.append({"resource_name": "x" * 20})
