"""Hand-made Produce requests, one row per rule, sent to oncelog and to Apache Kafka; the answers are compared.

Each row names its steps (the requests, in order, on a partition of its own) and what Kafka answers to each. Both
brokers must give exactly that, in every field, and must afterwards hold the same batches. Where oncelog deliberately
answers otherwise, the row says what and why in `oncelog` and `because`; a difference that no row explains is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.support.batches import (
    CONTROL,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    TIMESTAMP_MS,
    TRANSACTIONAL,
    ZSTD,
    Record,
    compress,
    encode_record,
    make_batch,
    make_message,
    read_batches,
    zigzag,
)
from tests.support.compare import assert_equal
from tests.support.process import BrokerProcess
from tests.support.raw import ConnectionClosedError, RawClient
from tests.support.requests import create_topic, fetch, produce

OK = 0
UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87

LAST_SEQUENCE = 2**31 - 1
PRODUCER_ID = 77
MAX_MESSAGE_BYTES = 1_048_588
HOUR_MS = 3_600_000
SILENCE_S = 1.0
BOMB_BYTES = 300_000_000


class Answer(NamedTuple):
    """What is compared of an answer: all but the words, and where the log starts if the batch was refused.

    Kafka tells the latter for some errors and not for others; clients look at it only for an error that no broker
    sends any more (UNKNOWN_PRODUCER_ID).
    """

    error_code: int
    base_offset: int = -1
    append_time: str | None = None
    log_start_offset: int | None = None
    rejected_records: tuple[int, ...] = ()


# Kafka never answers this request; the client waits until its own timeout.
SILENCE = Answer(-(1 << 15))
CLOSED = Answer(-(1 << 14))


@dataclass(frozen=True)
class Row:
    steps: tuple[bytes | None, ...]
    kafka: tuple[Answer, ...]
    oncelog: tuple[Answer, ...] | None = None
    because: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)
    acks: int = -1
    transactional_id: str | None = None
    partition: int = 0

    def expected_of(self, kind: str) -> tuple[Answer, ...]:
        return self.oncelog if kind == "oncelog" and self.oncelog is not None else self.kafka


def batch(sequence: int, count: int = 1, *, epoch: int = 0, **lies: int) -> bytes:
    """What an idempotent producer sends: `count` records from `sequence` on."""
    return make_batch([b"v"] * count, producer_id=PRODUCER_ID, epoch=epoch, sequence=sequence, **lies)


def written(*base_offsets: int) -> tuple[Answer, ...]:
    return tuple(Answer(OK, offset, log_start_offset=0) for offset in base_offsets)


def duplicate(base_offset: int) -> Answer:
    """A duplicate is answered with the first write's offset and, whatever the topic's type, its timestamp."""
    return Answer(OK, base_offset, append_time="of the batch", log_start_offset=0)


def refused(code: int) -> Answer:
    return Answer(code)


def rejected(code: int, *records: int) -> Answer:
    """Refused because of these records of the batch."""
    return Answer(code, rejected_records=records)


SEQUENCES = {
    "a duplicate of the newest batch": Row((batch(0), batch(0), batch(1)), (*written(0), duplicate(0), *written(1))),
    "duplicates of the five newest batches": Row(
        tuple(batch(2 * n, 2) for n in range(6)) + tuple(batch(2 * n, 2) for n in (1, 2, 3, 4, 5)),
        (*written(0, 2, 4, 6, 8, 10), *(duplicate(offset) for offset in (2, 4, 6, 8, 10))),
    ),
    "a duplicate older than the five newest": Row(
        (*(batch(n) for n in range(6)), batch(0)), (*written(*range(6)), refused(OUT_OF_ORDER_SEQUENCE_NUMBER))
    ),
    "the same sequences with other contents are still a duplicate": Row(
        (batch(0), make_batch([b"other"], producer_id=PRODUCER_ID, epoch=0, sequence=0)),
        (*written(0), duplicate(0)),
    ),
    "a partial overlap": Row(
        (batch(0, 5), batch(0, 3), batch(2, 3), batch(3, 4), batch(0, 6)),
        (*written(0), *[refused(OUT_OF_ORDER_SEQUENCE_NUMBER)] * 4),
    ),
    "a gap": Row((batch(0), batch(2), batch(1)), (*written(0), refused(OUT_OF_ORDER_SEQUENCE_NUMBER), *written(1))),
    "an unknown producer may start anywhere": Row(
        (batch(10), batch(11), batch(10), batch(0)),
        (*written(0, 1), duplicate(0), refused(OUT_OF_ORDER_SEQUENCE_NUMBER)),
    ),
    "a lower epoch": Row(
        (batch(0, epoch=3), batch(1, epoch=2), batch(1, epoch=3)),
        (*written(0), refused(INVALID_PRODUCER_EPOCH), *written(1)),
    ),
    "a higher epoch starts at zero": Row(
        (batch(0), batch(1, epoch=1), batch(0, epoch=1), batch(0, epoch=1), batch(1)),
        (
            *written(0),
            refused(OUT_OF_ORDER_SEQUENCE_NUMBER),
            *written(1),
            duplicate(1),
            refused(INVALID_PRODUCER_EPOCH),
        ),
    ),
    "the sequence wraps between batches": Row(
        (batch(LAST_SEQUENCE), batch(0), batch(LAST_SEQUENCE), batch(0)), (*written(0, 1), duplicate(0), duplicate(1))
    ),
    "the sequence wraps inside a batch": Row(
        (batch(LAST_SEQUENCE - 1, 4), batch(2), batch(LAST_SEQUENCE - 1, 4)), (*written(0, 4), duplicate(0))
    ),
    "a batch that ends exactly at the last sequence": Row(
        (batch(LAST_SEQUENCE - 1, 2), batch(0), batch(LAST_SEQUENCE - 1, 2)), (*written(0, 2), duplicate(0))
    ),
    "a gap across the wrap": Row(
        (batch(LAST_SEQUENCE), batch(1)), (*written(0), refused(OUT_OF_ORDER_SEQUENCE_NUMBER))
    ),
    "two producers do not disturb each other": Row(
        (
            batch(0),
            make_batch(producer_id=78, epoch=0, sequence=5),
            batch(1),
            make_batch(producer_id=78, epoch=0, sequence=6),
        ),
        written(0, 1, 2, 3),
    ),
    "without a producer id nothing is a duplicate": Row((make_batch(), make_batch()), written(0, 1)),
    "without a producer id sequences mean nothing": Row(
        (make_batch(sequence=9), make_batch(epoch=0, sequence=0), make_batch(producer_id=-2, epoch=0, sequence=0)),
        written(0, 1, 2),
    ),
    "a duplicate on a topic with append times": Row(
        (batch(0), batch(0), batch(1)),
        tuple(Answer(OK, offset, append_time="now", log_start_offset=0) for offset in (0, 0, 1)),
        configs={"message.timestamp.type": "LogAppendTime"},
    ),
    "acks of the leader alone": Row((batch(0), batch(0)), (*written(0), duplicate(0)), acks=1),
}

MALFORMED = {
    "a control batch": Row(
        (make_batch([Record(b"\0\0\0\1", bytes(6))], producer_id=PRODUCER_ID, epoch=0, attributes=CONTROL),),
        (refused(INVALID_RECORD),),
    ),
    "a negative sequence with a producer id": Row((batch(-1), batch(-5)), (refused(INVALID_RECORD),) * 2),
    "more records claimed than sent": Row(
        (batch(0, 2, record_count=3), batch(0, 2, record_count=3, last_offset_delta=2)), (refused(INVALID_RECORD),) * 2
    ),
    "fewer records claimed than sent": Row(
        (batch(0, 2, record_count=1), batch(0, 2, record_count=1, last_offset_delta=0)), (refused(INVALID_RECORD),) * 2
    ),
    "a last offset delta that does not fit the count": Row(
        (batch(0, 2, last_offset_delta=5),), (refused(INVALID_RECORD),)
    ),
    "no records in the batch": Row(
        (make_batch([], last_offset_delta=-1), make_batch([], last_offset_delta=0)), (refused(INVALID_RECORD),) * 2
    ),
    "a negative count": Row((make_batch(record_count=-1),), (refused(INVALID_RECORD),)),
    "a wrong CRC": Row((batch(0, crc=1), batch(0)), (refused(CORRUPT_MESSAGE), *written(0))),
    "two batches": Row((batch(0) + batch(1), make_batch() + make_batch()), (refused(INVALID_RECORD),) * 2),
    "no batch": Row((b"",), (refused(INVALID_RECORD),)),
    "null records": Row(
        (None,),
        (SILENCE,),
        oncelog=(refused(INVALID_RECORD),),
        because="Kafka fails inside and never answers; the client deserves an answer",
    ),
    "a truncated batch": Row(tuple(make_batch()[:size] for size in (10, 17, 30, -3)), (refused(INVALID_RECORD),) * 4),
    "message formats 0 and 1": Row((make_message(magic=0), make_message(magic=1)), (refused(INVALID_RECORD),) * 2),
    "format 1 claimed by a batch of format 2": Row((make_batch(magic=1),), (refused(INVALID_RECORD),)),
    "a format from the future": Row(
        (make_batch(magic=3),),
        (refused(CORRUPT_MESSAGE),),
        oncelog=(refused(INVALID_RECORD),),
        because="one answer for every format but 2; Kafka's depends on where its parser stumbles",
    ),
    "a length that is too small": Row(
        tuple(make_batch(length=length) for length in (-1, 0, 10)), (refused(CORRUPT_MESSAGE),) * 3
    ),
    "a length beyond the end": Row((make_batch(length=10_000),), (refused(INVALID_RECORD),)),
    "bytes after the batch": Row(
        (make_batch() + bytes(100), make_batch() + bytes(5)),
        (refused(CORRUPT_MESSAGE), *written(0)),
        oncelog=(refused(INVALID_RECORD),) * 2,
        because="exactly one batch is expected; Kafka drops a few bytes silently and stumbles over more",
    ),
    "an unknown codec": Row(
        tuple(make_batch(attributes=codec) for codec in (5, 6, 7)),
        (refused(UNKNOWN_SERVER_ERROR),) * 3,
        oncelog=(refused(UNSUPPORTED_COMPRESSION_TYPE),) * 3,
        because="Kafka has no check of its own; the code that exists for it says more than 'unknown error'",
    ),
    "compressed records that do not decompress": Row(
        tuple(make_batch(attributes=codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)),
        (refused(UNKNOWN_SERVER_ERROR),) * 4,
        oncelog=(refused(CORRUPT_MESSAGE),) * 4,
        because="the codec's failure is the batch's fault, not an unknown one",
    ),
    "a base offset other than zero": Row(
        (make_batch(base_offset=55), make_batch(base_offset=-3)), (refused(INVALID_RECORD),) * 2
    ),
    "a leader epoch is overwritten": Row((make_batch(leader_epoch=7),), written(0)),
    "records without contents": Row(
        tuple(make_batch(section=section) for section in (b"", b"\x00", b"\x02\x00")), (refused(INVALID_RECORD),) * 3
    ),
    "a varint that never ends": Row(
        (make_batch(section=b"\xff" * 20),),
        (refused(UNKNOWN_SERVER_ERROR),),
        oncelog=(refused(INVALID_RECORD),),
        because="Kafka's own exception has no code",
    ),
    "a record length beyond the batch": Row(
        (make_batch(section=zigzag(1000) + encode_record(Record(), 0)[1:]),), (refused(INVALID_RECORD),)
    ),
    "a negative record length": Row(
        (make_batch(section=zigzag(-64) + encode_record(Record(), 0)[1:]),), (refused(INVALID_RECORD),)
    ),
    "bytes after the last record": Row(
        (make_batch(section=encode_record(Record(), 0) + b"xx"),), (refused(INVALID_RECORD),)
    ),
    "a key length beyond the record": Row(
        (make_batch(section=zigzag(8) + bytes(3) + zigzag(1000) + b"abcd"),), (refused(INVALID_RECORD),)
    ),
    "a header count that is a lie": Row(
        tuple(make_batch(section=zigzag(5 + len(zigzag(n))) + b"\0\0\0\1\1" + zigzag(n)) for n in (1000, -1)),
        (refused(INVALID_RECORD),) * 2,
    ),
    "a header without a name": Row(
        (make_batch(section=zigzag(8) + b"\0\0\0\1\1" + zigzag(1) + b"\1\1"),), (refused(INVALID_RECORD),)
    ),
    "offset deltas that are not 0, 1, 2, ...": Row(
        (
            make_batch([Record(offset_delta=1)]),
            make_batch([Record(), Record(offset_delta=0)]),
            make_batch([Record(), Record(offset_delta=5)], last_offset_delta=5),
        ),
        (*written(0, 1), refused(INVALID_RECORD)),
        oncelog=(refused(INVALID_RECORD),) * 3,
        because="Kafka stores these uncompressed and readers then see wrong offsets",
    ),
    "counts that lie inside a compressed batch": Row(
        (
            make_batch([b"a", b"b"], codec=GZIP, record_count=3),
            make_batch([b"a", b"b"], codec=GZIP, record_count=1),
            make_batch([Record(), Record(offset_delta=5)], codec=GZIP, last_offset_delta=5),
        ),
        (refused(INVALID_RECORD),) * 3,
    ),
    "unused attribute bits are kept": Row(tuple(make_batch(attributes=bits) for bits in (0x80, 0x100)), written(0, 1)),
    "a client that claims append time": Row(
        (make_batch(attributes=LOG_APPEND_TIME),),
        written(0),
        oncelog=(refused(INVALID_TIMESTAMP),),
        because="Kafka's check for it covers only older formats; readers would take the client's time for the broker's",
    ),
    "acks outside the set": Row((batch(0),), (refused(INVALID_REQUIRED_ACKS),), acks=2),
    "negative acks outside the set": Row((batch(0),), (refused(INVALID_REQUIRED_ACKS),), acks=-2),
    "an unknown partition": Row((batch(0),), (refused(UNKNOWN_TOPIC_OR_PARTITION),), partition=1),
    "a negative partition": Row((batch(0),), (refused(UNKNOWN_TOPIC_OR_PARTITION),), partition=-1),
    "a transactional batch without a transactional id": Row(
        (batch(0, attributes=TRANSACTIONAL),), (refused(TRANSACTIONAL_ID_AUTHORIZATION_FAILED),)
    ),
    "a transactional id without a transactional batch": Row((batch(0),), written(0), transactional_id="some"),
}


def _batch_of(size_bytes: int) -> bytes:
    """A batch of exactly that size; a record of this size has 11 bytes around its value."""
    made = make_batch([bytes(size_bytes - 61 - 11)])
    assert len(made) == size_bytes
    return made


def _bomb(codec: int) -> bytes:
    value_size = BOMB_BYTES
    head = bytes(3) + zigzag(-1) + zigzag(value_size)
    record = zigzag(len(head) + value_size + 1) + head + bytes(value_size) + zigzag(0)
    return make_batch(section=compress(codec, record), codec=codec)


SIZES: dict[str, Callable[[], Row]] = {
    "the largest batch allowed": lambda: Row((_batch_of(MAX_MESSAGE_BYTES),), written(0)),
    "one byte too large": lambda: Row((_batch_of(MAX_MESSAGE_BYTES + 1),), (refused(MESSAGE_TOO_LARGE),)),
    "small only while compressed": lambda: Row((make_batch([bytes(3 * MAX_MESSAGE_BYTES)], codec=GZIP),), written(0)),
    "a topic's own limit": lambda: Row(
        (_batch_of(20_001), _batch_of(20_000)),
        (refused(MESSAGE_TOO_LARGE), *written(0)),
        configs={"max.message.bytes": "20000"},
    ),
    "a decompression bomb in gzip": lambda: Row(
        (_bomb(GZIP), batch(0)),
        written(0, 1),
        oncelog=(refused(INVALID_RECORD), *written(0)),
        because="what a batch may unfold to is bounded",
    ),
    "a decompression bomb in zstd": lambda: Row(
        (_bomb(ZSTD), batch(0)),
        written(0, 1),
        oncelog=(refused(INVALID_RECORD), *written(0)),
        because="what a batch may unfold to is bounded",
    ),
}

RULES = {
    "no key on a compacted topic": Row(
        (make_batch(), make_batch([Record(b"k")]), make_batch([Record(b"k"), Record(), Record()])),
        (rejected(INVALID_RECORD, 0), *written(0), rejected(INVALID_RECORD, 1, 2)),
        configs={"cleanup.policy": "compact"},
    ),
    "a timestamp too far in the past": Row(
        (make_batch([b"a", b"b"]),),
        (rejected(INVALID_TIMESTAMP, 0, 1),),
        configs={"message.timestamp.before.max.ms": str(HOUR_MS)},
    ),
    "a timestamp too far in the future": Row(
        (make_batch(base_timestamp=4_000_000_000_000),),
        (rejected(INVALID_TIMESTAMP, 0),),
    ),
    "old, zero and absent timestamps": Row(
        tuple(make_batch(base_timestamp=ms) for ms in (TIMESTAMP_MS, 0, -1)), written(0, 1, 2)
    ),
    "a largest timestamp that is a lie": Row(
        (make_batch(max_timestamp=5), make_batch(max_timestamp=-1)), written(0, 1)
    ),
}

ROWS: dict[str, Callable[[], Row]] = {
    **{name: (lambda row=row: row) for name, row in {**SEQUENCES, **MALFORMED, **RULES}.items()},
    **SIZES,
}


def _send(broker: BrokerProcess, topic: str, row: Row, records: bytes | None) -> Answer:
    """Each step on a connection of its own: a broker may close one on a bad request."""
    waits_s = SILENCE_S if SILENCE in row.kafka and broker.kind == "kafka" else 60
    with RawClient(broker.address, timeout_s=waits_s) as client:
        try:
            answer = produce(
                client,
                topic,
                records,
                acks=row.acks,
                partition=row.partition,
                transactional_id=row.transactional_id,
            )
        except ConnectionClosedError:
            return CLOSED
        except TimeoutError:
            return SILENCE
    append_time = answer["log_append_time"]
    if append_time is not None:
        append_time = "of the batch" if append_time == TIMESTAMP_MS else "now"
    return Answer(
        answer["error_code"],
        answer["base_offset"],
        append_time,
        answer["log_start_offset"] if answer["error_code"] == OK else None,
        tuple(each["batch_index"] for each in answer["record_errors"]),
    )


def _stored(broker: BrokerProcess, topic: str) -> list[tuple[int, ...]]:
    """What the log holds afterwards, without what the two brokers may rightly differ in (append times, CRCs)."""
    with RawClient(broker.address) as client:
        records = fetch(client, topic, max_wait=0)["records"] or b""
    return [
        (
            b.base_offset,
            b.last_offset_delta,
            b.attributes,
            b.producer_id,
            b.producer_epoch,
            b.base_sequence,
            b.record_count,
        )
        for b in read_batches(records)
    ]


@pytest.mark.parametrize("name", ROWS)
def test_append(name: str, both_brokers: dict[str, BrokerProcess], new_topic: Callable[[], str]) -> None:
    row, topic = ROWS[name](), new_topic()
    answers, stored = {}, {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            create_topic(client, topic, configs=dict(row.configs))
        answers[kind] = tuple(_send(broker, topic, row, records) for records in row.steps)
        stored[kind] = _stored(broker, topic)
        acknowledged = {answer.base_offset for answer in answers[kind] if answer.error_code == OK}
        assert {stored_batch[0] for stored_batch in stored[kind]} == acknowledged
    assert answers == {kind: row.expected_of(kind) for kind in both_brokers}
    if row.oncelog is None:
        assert_equal(stored)
