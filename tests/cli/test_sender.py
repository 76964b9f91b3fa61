"""The sender against a broker that misbehaves on purpose: what it repeats, it repeats under the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.cli.sender import ExactlyOnceSender, RecordInput
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.connection import ProtocolViolation
from oncelog.errors import (
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownTopicOrPartition,
)
from oncelog.records.kernel import parse_header
from oncelog.types import MAX_SEQUENCE
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import RequestHeader
from tests.client.fake_broker import HANG_UP, FakeBroker, metadata_answer

PRODUCER_ID, PRODUCER_EPOCH = 4711, 3


def produced(partitions: dict[int, tuple[int, int]]) -> Message:
    """An answer with (error code, base offset) per partition."""
    results = [
        {"index": index, "error_code": code, "base_offset": offset} for index, (code, offset) in partitions.items()
    ]
    return {"responses": [{"name": "t", "partition_responses": results}]}


def broker_that(answer: Callable[[int, list[int]], object]) -> FakeBroker:
    """`answer(n, partitions)` is what it says to the n-th Produce request."""
    count = 0

    def handle(header: RequestHeader, message: Message) -> object:
        nonlocal count
        if header.api_key == ApiKey.METADATA:
            return metadata_answer(broker, {"t": 2})
        if header.api_key == ApiKey.INIT_PRODUCER_ID:
            return {"producer_id": PRODUCER_ID, "producer_epoch": PRODUCER_EPOCH}
        count += 1
        return answer(count, [one["index"] for one in message["topic_data"][0]["partition_data"]])

    broker = FakeBroker(handle)
    return broker


def batches_sent(broker: FakeBroker) -> list[tuple[int, int, int]]:
    """(partition, base sequence, record count) of every batch that reached the broker, in order."""
    sent = []
    for header, message in broker.requests:
        if header.api_key == ApiKey.PRODUCE:
            assert message["acks"] == -1
            for one in message["topic_data"][0]["partition_data"]:
                batch = parse_header(one["records"])
                assert (batch.producer_id, batch.producer_epoch) == (PRODUCER_ID, PRODUCER_EPOCH)
                sent.append((one["index"], batch.base_sequence, batch.record_count))
    return sent


def sender_for(broker: FakeBroker) -> ExactlyOnceSender:
    return ExactlyOnceSender(BlockingClient(ClientConfig.of(broker.bootstrap, retry_backoff_ms=1)), "t", codec=0)


def records(count: int) -> list[RecordInput]:
    return [(1, None, b"%d" % number, ()) for number in range(count)]


def test_sequences_count_the_records_of_each_partition() -> None:
    with broker_that(lambda number, partitions: produced(dict.fromkeys(partitions, (0, 10 * number)))) as broker:
        sender = sender_for(broker)
        sender.send({0: records(3)})
        sender.send({0: records(2), 1: records(4)})
        sender.send({1: records(1)})
        assert batches_sent(broker) == [(0, 0, 3), (0, 3, 2), (1, 0, 4), (1, 4, 1)]
        assert sender.last_offsets == {0: 21, 1: 30}


def test_a_retry_keeps_its_numbers() -> None:
    answers = [HANG_UP, produced({0: (NotLeaderOrFollower.code, -1)}), HANG_UP, produced({0: (0, 7)})]
    with broker_that(lambda number, _: answers[number - 1]) as broker:
        sender = sender_for(broker)
        sender.send({0: records(3)})
        assert batches_sent(broker) == [(0, 0, 3)] * 4
        assert sender.last_offsets == {0: 9}


def test_only_the_partitions_that_failed_are_sent_again() -> None:
    answers = [produced({0: (0, 5), 1: (NotLeaderOrFollower.code, -1)}), produced({1: (0, 6)})]
    with broker_that(lambda number, _: answers[number - 1]) as broker:
        sender_for(broker).send({0: records(1), 1: records(2)})
        assert batches_sent(broker) == [(0, 0, 1), (1, 0, 2), (1, 0, 2)]


def test_a_duplicate_is_as_good_as_stored() -> None:
    with broker_that(lambda *_: produced({0: (DuplicateSequenceNumber.code, -1)})) as broker:
        sender = sender_for(broker)
        sender.send({0: records(1)})
        assert sender.last_offsets == {}


def test_a_leader_that_does_not_know_the_partition_yet_is_asked_again() -> None:
    answers = [produced({0: (UnknownTopicOrPartition.code, -1)}), produced({0: (0, 0)})]
    with broker_that(lambda number, _: answers[number - 1]) as broker:
        sender_for(broker).send({0: records(1)})
        assert len(batches_sent(broker)) == 2


def test_a_batch_that_is_too_large_is_split_under_the_same_numbers() -> None:
    def answer(number: int, partitions: list[int]) -> Message:
        (_, _, count) = batches_sent(broker)[-1]
        return produced({0: (MessageTooLarge.code, -1) if count > 2 else (0, number)})

    with broker_that(answer) as broker:
        sender = sender_for(broker)
        sender.send({0: records(5)})
        assert batches_sent(broker) == [(0, 0, 5), (0, 0, 2), (0, 2, 3), (0, 2, 1), (0, 3, 2)]
        sender.send({0: records(1)})
        assert batches_sent(broker)[-1] == (0, 5, 1)


@pytest.mark.parametrize("error", [InvalidRecord, OutOfOrderSequenceNumber, MessageTooLarge])
def test_what_no_retry_mends_is_raised_at_once(error: type[KafkaError]) -> None:
    with broker_that(lambda *_: produced({0: (error.code, -1)})) as broker:
        with pytest.raises(error, match="t-0"):
            sender_for(broker).send({0: records(1)})
        assert len(batches_sent(broker)) == 1


def test_a_hopeless_partition_is_not_retried_for_the_sake_of_another() -> None:
    refusal = produced({0: (NotLeaderOrFollower.code, -1), 1: (InvalidRecord.code, -1)})
    with broker_that(lambda *_: refusal) as broker, pytest.raises(InvalidRecord):
        sender_for(broker).send({0: records(1), 1: records(1)})


def test_an_answer_that_leaves_out_a_partition_is_a_violation() -> None:
    with broker_that(lambda *_: produced({})) as broker, pytest.raises(ProtocolViolation):
        sender_for(broker).send({0: records(1)})


def test_sequences_wrap() -> None:
    with broker_that(lambda *_: produced({0: (0, 0)})) as broker:
        sender = sender_for(broker)
        sender._next_sequence[0] = MAX_SEQUENCE
        sender.send({0: records(2)})
        sender.send({0: records(1)})
        assert batches_sent(broker) == [(0, MAX_SEQUENCE, 2), (0, 1, 1)]
