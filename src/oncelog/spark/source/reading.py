"""One task: the records of one range, as Arrow batches, in order.

The position decides when the range is read, not the last record: its tail may be markers, aborted records, or nothing.
Records that should be there and do not come are looked into: a loss fails the task or is skipped
(`failOnDataLoss`), and a broker that stays silent fails it after `kafkaConsumer.pollTimeoutMs`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncelog.client.blocking import BrokersUnreachable, ConnectionLost
from oncelog.client.consumer_errors import InvalidOffset
from oncelog.consumer.consumer import Consumer
from oncelog.errors import OncelogError, UnknownTopicId, UnknownTopicOrPartition
from oncelog.spark.source.cluster import Cluster
from oncelog.spark.source.columns import MAX_ROWS, SparkBatches
from oncelog.spark.source.losses import Loss, SkipTo, stalled
from oncelog.spark.source.pool import POOL
from oncelog.spark.source.ranges import OffsetRange
from oncelog.spark.source.settings import SourceSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_S = 0.02
"""How long one look for records takes: afterwards the position is looked at, which markers move as well."""

STALL_S = 2.0
"""After so long without progress the brokers are asked where the log begins and ends, and again and again."""

_POSITION_LOST = (InvalidOffset, UnknownTopicId, UnknownTopicOrPartition)


class ReadTimedOut(OncelogError):
    """Records that must be there did not come in time."""


def read_range(settings: SourceSettings, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Raises DataLoss, ReadTimedOut, and what the client raises."""
    if len(wanted) > 0:
        with POOL.consumer(settings.client) as consumer:
            yield from RangeReader(settings, consumer, wanted).batches()


class RangeReader:
    def __init__(self, settings: SourceSettings, consumer: Consumer, wanted: OffsetRange) -> None:
        self._settings = settings
        self._consumer = consumer
        self._wanted = wanted
        self._position = wanted.start
        self._moved_at = self._looked_at = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        partition, end = self._wanted.partition, self._wanted.end
        self._consumer.assign([partition])
        self._consumer.seek(partition, self._position)
        columns = yield from self._first()
        while self._position < end:
            table = self._ask(self._table)
            if table is not None and table.num_rows:
                assert columns is not None, "a record has come first"
                yield from columns.of(_before(end, table))
                self._moved_at = time.monotonic()  # Spark may have taken its time; that was not the broker's

    def _table(self) -> pa.Table:
        """No more than the range may have left; what lies behind its end after gaps is cut off later."""
        return self._consumer.read_table(WAIT_S, max_records=min(self._wanted.end - self._position, MAX_ROWS))

    def _first(self) -> Generator[pa.RecordBatch, None, SparkBatches | None]:
        """The first record goes alone: it tells of what type the timestamps are, which tables do not."""
        while self._position < self._wanted.end:
            for record in self._ask(lambda: self._consumer.poll(WAIT_S, max_records=1)) or ():
                if record.offset < self._wanted.end:
                    columns = SparkBatches(
                        self._wanted.partition, record.timestamp_type, include_headers=self._settings.include_headers
                    )
                    yield columns.of_record(record)
                    self._moved_at = time.monotonic()
                    return columns
        return None

    # --- progress -----------------------------------------------------------------------------------------------------

    def _ask(self, read: Callable[[], T]) -> T | None:
        """What was read, and the position afterwards; None if nothing can be read there."""
        try:
            found = read()
            position = self._consumer.position(self._wanted.partition)
        except _POSITION_LOST as error:
            self._look_into(error)
            return None
        now = time.monotonic()
        if position > self._position:
            self._position, self._moved_at = position, now
        elif now - max(self._moved_at, self._looked_at) > STALL_S:
            self._look_into(None)
        return found

    def _look_into(self, error: Exception | None) -> None:
        """Nothing comes. Goes on where something can be read, or raises."""
        waited_ms = (time.monotonic() - self._moved_at) * 1000
        is_patient = waited_ms < self._settings.poll_timeout_ms
        try:
            with Cluster(self._settings) as cluster:
                log = cluster.log_bounds(self._wanted.partition)
        except (BrokersUnreachable, ConnectionLost):
            if not is_patient:
                raise
            if error is not None:
                self._consumer.seek(self._wanted.partition, self._position)
            return  # the consumer goes on trying to connect
        finally:
            self._looked_at = time.monotonic()
        if isinstance(error, UnknownTopicId):
            self._lost(Loss(f"topic {self._wanted.partition.topic!r} was deleted and created again while it was read"))
        verdict = stalled(self._wanted, self._position, log, is_patient=is_patient)
        if isinstance(verdict, SkipTo):
            self._lost(verdict.loss)
            self._position, self._moved_at = verdict.offset, self._looked_at
        elif not is_patient:
            raise ReadTimedOut(
                f"nothing came from {self._wanted.partition} at offset {self._position} for {waited_ms:.0f} ms,"
                f" although its log goes on ({log}): see the broker, or raise kafkaConsumer.pollTimeoutMs"
            ) from error
        if error is not None or isinstance(verdict, SkipTo):
            time.sleep(WAIT_S)  # whoever leads the partition now may still be getting ready
            self._consumer.seek(self._wanted.partition, self._position)

    def _lost(self, loss: Loss) -> None:
        if self._settings.fail_on_data_loss:
            raise loss.error()
        logger.warning("%s: records that this query has not read are gone", loss.what)


def _before(end: int, table: pa.Table) -> pa.Table:
    offsets = table.column("offset")
    if offsets[-1].as_py() < end:
        return table
    return table.slice(0, pc.sum(pc.less(offsets, end)).as_py() or 0)
