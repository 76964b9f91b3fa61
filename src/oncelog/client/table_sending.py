"""The rows of a table on their way into the accumulator's batches, without I/O: a step at a time, as memory allows.

Rows of a partition keep their order. They join its open batch and begin new ones as single records do, so that memory,
linger, numbers and retries are those of `send()`. The shell calls `advance` until all is sent, and decides what happens
when memory is full. Interceptors and serializers are for single records; they see nothing of a table.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oncelog.client.accumulator import BATCH_BYTES, Accumulator, PartitionQueue, RecordTooLarge, TopicQueues
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery, Waiter
from oncelog.client.metadata import NO_LEADER
from oncelog.client.partitioner import NO_PARTITION
from oncelog.client.placement import Placement
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.table_result import RowNumbers, TableFuture
from oncelog.records.model import Buffer

if TYPE_CHECKING:
    from oncelog.records.arrow_columns import TableColumns, TablePiece


class Step(Enum):
    MOVED = auto()
    FULL = auto()
    """No memory: the same step is to be tried again when some came free."""
    ENDED = auto()


class RowGroup(NamedTuple):
    """Rows of a piece that go to one partition, or to any (`NO_PARTITION`)."""

    piece: TablePiece
    partition: int
    order: Buffer | None

    @property
    def row_count(self) -> int:
        return self.piece.rows.row_count if self.order is None else len(self.order) // 4

    def numbers(self, start: int, stop: int) -> RowNumbers:
        return RowNumbers(self.piece.first_row, start, stop, self.order)


class TableSending:
    def __init__(
        self,
        columns: TableColumns,
        topic: TopicQueues,
        now_ms: int,
        *,
        accumulator: Accumulator,
        placement: Placement,
        config: ProducerConfig,
        new_waiter: Callable[[], Waiter],
        future: TableFuture,
    ) -> None:
        """`now_ms` is the wall clock's, for rows without a timestamp."""
        self._columns = columns
        self._topic = topic
        self._partition = columns.partition if isinstance(columns.partition, int) else None
        self._partition_count = len(topic.queues)
        self._now_ms = now_ms
        self._accumulator = accumulator
        self._placement = placement
        self._config = config
        self._new_waiter = new_waiter
        self._future = future
        self._chosen: list[Buffer] = []
        """What a partitioner of the user's own chose, piece by piece."""
        self._groups = self._grouped()
        self._group: RowGroup | None = None
        self._at = 0
        self._batch_bytes = min(config.batch_size, config.buffer_memory - BATCH_BYTES)
        self.accepted_rows = 0
        """How many are in batches of the accumulator."""
        self._encoded: tuple[PartitionQueue, ProducerBatch] | None = None
        """A new batch, and the queue that takes it once there is memory."""

    @property
    def has_sent(self) -> bool:
        """Some rows were accepted."""
        return self.accepted_rows > 0

    # --- before anything is sent ------------------------------------------------------------------------------

    def check(self) -> Iterator[None]:
        """Look at every row, some at a time. Raises RecordTooLarge for one that could never be sent, and what a
        partitioner of the user's own raises."""
        limit = min(self._config.max_request_size, self._config.buffer_memory - BATCH_BYTES)
        for piece in self._columns.pieces(self._now_ms):
            row = piece.rows.find_larger(limit)
            if row >= 0:
                raise RecordTooLarge(
                    f"row {piece.first_row + row} for {self._topic.name} is larger than max.request.size"
                    f" ({self._config.max_request_size}) or buffer.memory ({self._config.buffer_memory}) allow;"
                    " nothing was sent; leave it out, or raise these (and the topic's max.message.bytes)"
                )
            if self._placement.needs_keys and self._partition is None:
                self._chosen.append(self._choose(piece))
            yield

    def _choose(self, piece: TablePiece) -> bytes:
        wanted = _as_array(piece.partitions, piece.rows.row_count)
        for row, (key, value) in enumerate(piece.keys_and_values()):
            if wanted[row] == NO_PARTITION:
                wanted[row] = self._placement.of_key(self._topic, key, value)
        return wanted.tobytes()

    # --- sending ----------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> Step:
        """Put rows into one batch. `now_ms` is monotonic."""
        if self._encoded is not None:
            return self._add_encoded()
        group = self._group
        if group is None or self._at == group.row_count:
            self._group = group = next(self._groups, None)
            self._at = 0
        if group is None:
            self._future.all_sent()
            return Step.ENDED
        queue = self._queue_of(group)
        if self._join(queue, group):
            return Step.MOVED
        self._encoded = queue, self._encode(queue, group, now_ms)
        return self._add_encoded()

    def give_up(self, error: Exception) -> int:
        """Send no more rows: those that are left fail with `error`. Returns how many."""
        left = 0
        if self._encoded is not None:
            _, batch = self._encoded
            left = batch.record_count
            batch.delivery.fail(error)
            batch.delivery.announce()
            self._encoded = None
        at = self._at
        for group in [self._group, *self._groups]:
            if group is not None and at < group.row_count:
                self._future.gave_up(group.partition, group.numbers(at, group.row_count).ranges(), error)
                left += group.row_count - at
            at = 0
        self._future.all_sent()
        return left

    def _queue_of(self, group: RowGroup) -> PartitionQueue:
        if group.partition == NO_PARTITION:
            return self._placement.queue_for(self._topic, None, None, None)
        return self._topic.queues[group.partition]

    def _join(self, queue: PartitionQueue, group: RowGroup) -> bool:
        """Append to the open batch what it takes; false if that is nothing."""
        joined = self._accumulator.append_rows(queue, group.piece.rows, self._at, group.row_count, group.order)
        if joined is None:
            return False
        delivery, first_index, count = joined
        if count:
            self._took(delivery, first_index, group, count)
            self.accepted_rows += count
        return count > 0

    def _encode(self, queue: PartitionQueue, group: RowGroup, now_ms: int) -> ProducerBatch:
        """A new batch, filled before anybody else sees it, so that no lock is held meanwhile."""
        delivery = Delivery(queue.topic, queue.index, self._new_waiter)
        batch = ProducerBatch(queue.topic, queue.index, now_ms, self._batch_bytes, delivery)
        batch.charged_bytes = batch.size_bytes + BATCH_BYTES
        batch.append_rows(group.piece.rows, self._at, group.row_count, self._batch_bytes, group.order)
        self._took(delivery, 0, group, batch.record_count)
        return batch

    def _took(self, delivery: Delivery, first_index: int, group: RowGroup, count: int) -> None:
        self._future.took(delivery, first_index, group.numbers(self._at, self._at + count))
        self._at += count
        if self._at < group.row_count and group.partition == NO_PARTITION:
            self._topic.sticky_bytes += self._batch_bytes  # the batch is full: on to another partition

    def _add_encoded(self) -> Step:
        assert self._encoded is not None
        assert self._group is not None
        queue, batch = self._encoded
        count = batch.record_count  # before others may join it
        # What is full has nothing to linger for.
        if not self._accumulator.add(queue, batch, is_full=self._at < self._group.row_count):
            return Step.FULL
        self._encoded = None
        self.accepted_rows += count
        return Step.MOVED

    # --- which rows go where ----------------------------------------------------------------------------------

    def _grouped(self) -> Iterator[RowGroup]:
        chosen = iter(self._chosen)
        for piece in self._columns.pieces(self._now_ms):
            if self._partition is not None:
                yield RowGroup(piece, self._partition, None)
                continue
            for partition, order in self._by_partition(piece, next(chosen, piece.partitions)):
                yield RowGroup(piece, partition, order)

    def _by_partition(self, piece: TablePiece, partitions: Buffer | None) -> list[tuple[int, Buffer | None]]:
        use_keys = not self._config.partitioner_ignore_keys and not self._placement.needs_keys
        groups = piece.rows.by_partition(self._partition_count, partitions, use_keys)
        if not groups or groups[0][0] != NO_PARTITION:
            return groups
        if self._config.partitioner == "round_robin":
            dealt = self._dealt_out(piece, partitions, groups[0][1])
            return piece.rows.by_partition(self._partition_count, dealt, use_keys)
        if len(groups) == 1:
            return groups  # each batch goes where there is room
        # One partition takes those of this piece that may go anywhere, in their order among its others.
        anywhere = self._placement.queue_for(self._topic, None, None, None).index
        self._topic.sticky_bytes += self._config.batch_size
        return piece.rows.by_partition(self._partition_count, partitions, use_keys, anywhere)

    def _dealt_out(self, piece: TablePiece, partitions: Buffer | None, anywhere: Buffer | None) -> bytes:
        """The partitions of a piece, with those rows that may go anywhere dealt out one by one."""
        wanted = _as_array(partitions, piece.rows.row_count)
        rows = range(len(wanted)) if anywhere is None else array("i", bytes(anywhere))
        turns = sum(queue.leader != NO_LEADER for queue in self._topic.queues) or self._partition_count
        for turn in range(min(turns, len(rows))):
            partition = self._placement.queue_for(self._topic, None, None, None).index
            for row in rows[turn::turns]:
                wanted[row] = partition
        for _ in range(len(rows) % turns if len(rows) > turns else 0):
            self._placement.queue_for(self._topic, None, None, None)
        return wanted.tobytes()


def _as_array(partitions: Buffer | None, row_count: int) -> array[int]:
    if partitions is None:
        return array("i", [NO_PARTITION]) * row_count
    return array("i", bytes(partitions)[: 4 * row_count])
