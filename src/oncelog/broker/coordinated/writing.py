"""Records of a coordinator become a batch of its log: appended, readable, counted. Whether they are durable is asked
separately, and what befalls the coordinator's own partition is put into words that clients of a coordinator know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    RecordListTooLarge,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from oncelog.log.partition_log import PartitionLog
from oncelog.log.producer_state import AppendOrigin
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

UNCOUNTED = 0
"""The sequence of every batch that a coordinator writes for a producer, as Kafka does: nobody checks it."""

_MEANINGS: dict[type[KafkaError], type[KafkaError]] = {
    KafkaStorageError: NotCoordinator,
    UnknownTopicOrPartition: CoordinatorNotAvailable,
    MessageTooLarge: UnknownServerError,
    RecordListTooLarge: UnknownServerError,
}


def as_client_knows(error: KafkaError) -> KafkaError:
    """What befalls the coordinator's own partition is no error of the partitions that the client asked about."""
    meaning = _MEANINGS.get(type(error))
    return error if meaning is None else meaning(error.message)


class Writer(NamedTuple):
    """Into whose transaction records go that a coordinator writes for somebody else."""

    producer_id: int
    producer_epoch: int


def append_records(
    broker: BrokerState,
    log: PartitionLog,
    records: Iterable[tuple[bytes, bytes | None]],
    *,
    leader_epoch: int,
    codec: int,
    now_ms: int,
    writer: Writer | None = None,
) -> None:
    """One batch. Raises KafkaStorageError, MessageTooLarge or RecordListTooLarge, and for a writer what the log has
    against it; then nothing was written.

    The stamps are of the clock that nobody turns, not the time of day: coordinators tell by them how long they were
    absent (`coordinator/absence.py`) and compare them with what the values say, which is of that clock too. Retention
    never looks at them, for these topics are compacted."""
    builder = kernel.BatchBuilder()
    for key, value in records:
        builder.append(now_ms, key, value, ())
    if writer is None:
        batch = builder.build(leader_epoch=leader_epoch, codec=codec)
    else:
        batch = builder.build(
            leader_epoch=leader_epoch,
            codec=codec,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            base_sequence=UNCOUNTED,
            transactional=True,
        )
    header = kernel.parse_header(batch)
    if len(batch) > log.config.max_message_bytes:
        raise MessageTooLarge(
            f"{header.record_count} records of {log.topic_partition} need {len(batch)} bytes; "
            f"its max.message.bytes is {log.config.max_message_bytes}"
        )
    log.append(batch, header, leader_epoch=leader_epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
    log.advance_high_watermark(log.log_end_offset)
    broker.metrics.appended(log.topic_partition.topic, len(batch), header.record_count)
    broker.purgatory.appended(log.topic_partition, len(batch))


def awaits_flush(log: PartitionLog) -> bool:
    """Whether `flush.messages` promises the disk for something that is not there yet."""
    return log.log_end_offset - log.recovery_point >= log.config.flush_messages
