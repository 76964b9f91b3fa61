"""What members write for each other: read as far as it is known, and rubbish is named as such."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.membership.assignor import Subscription
from oncelog.client.membership.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.codec import MalformedMessage
from tests.support.sizes import examples

OWNED = (TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1))
EXAMPLES = settings(max_examples=examples(200), deadline=None)


def test_a_subscription_comes_back_as_it_was() -> None:
    data = encode_subscription(["u", "t"], user_data=b"x", owned=OWNED, generation_id=4, rack="r")
    assert decode_subscription(data, "i") == Subscription(("t", "u"), b"x", OWNED, 4, "r", "i")


@pytest.mark.parametrize("version", range(4))
def test_older_versions_are_read(version: int) -> None:
    message = {"topics": ["t"], "user_data": b"x", "owned_partitions": [{"topic": "t", "partitions": [1]}]}
    data = struct.pack(">h", version) + codec.encode("ConsumerProtocolSubscription", version, message)
    read = decode_subscription(data)
    assert read.topics == ("t",)
    assert read.user_data == b"x"
    assert read.owned == ((TopicPartition("t", 1),) if version else ())
    assert read.generation_id == -1


def test_newer_versions_are_read_as_far_as_they_are_known() -> None:
    data = encode_subscription(["t"], owned=OWNED, generation_id=4)
    newer = struct.pack(">h", 9) + data[2:] + b"what the future brings"
    assert decode_subscription(newer) == decode_subscription(data)
    newer = struct.pack(">h", 9) + encode_assignment(OWNED)[2:] + b"\xff"
    assert decode_assignment(newer) == frozenset(OWNED)


def test_an_assignment_comes_back_as_it_was() -> None:
    assert decode_assignment(encode_assignment(OWNED)) == frozenset(OWNED)


def test_whom_the_leader_left_out_gets_nothing() -> None:
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_rubbish_is_not_a_subscription(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_subscription(data)


@EXAMPLES
@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_named_as_rubbish(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedMessage:
            continue
