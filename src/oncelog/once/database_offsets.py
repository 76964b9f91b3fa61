"""Offsets in the database: how far a partition has been worked on is committed with the effects themselves.

One row per partition, however many messages. A worker that is assigned a partition claims its row, which gives the
claim a higher number and says where to go on. Every later transaction checks its number under the row's lock: a worker
that lost the partition without knowing (a zombie) is refused, whatever it still holds in hand.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from oncelog.once.database import Database, Transaction
from oncelog.once.errors import NotClaimed, PartitionFenced
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.once.strategy import NO_GENERATION, Guard, Record, Strategy
from oncelog.types import TopicPartition

OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class DatabaseOffsets(Strategy):
    """The database says where to go on; what the group has committed to the broker no longer matters."""

    def bind(self, database: Database, scope: str) -> Guard:
        database.ensure((OFFSETS,))
        return _OffsetsGuard(database, scope)


class _OffsetsGuard(Guard):
    table = None
    keeps_positions = True

    def __init__(self, database: Database, scope: str) -> None:
        self._database = database
        self._scope = scope
        self._owner = uuid4().hex
        self._claims: dict[TopicPartition, int] = {}
        table, dialect = database.tables.name(OFFSETS), database.dialect
        partitions = f"SELECT {dialect.field(0)}, {dialect.field(1, 'INTEGER')} FROM {dialect.each_row}"
        self._claim = (
            f"INSERT INTO {table} AS stored "
            "(scope, topic, kafka_partition, next_offset, claim, owner, generation, changed_at_ms) "
            f"VALUES (:scope, :topic, :partition, NULL, 1, :owner, :generation, {dialect.now_ms}) "
            "ON CONFLICT (scope, topic, kafka_partition) DO UPDATE SET claim = stored.claim + 1, "
            "owner = excluded.owner, generation = excluded.generation, changed_at_ms = excluded.changed_at_ms "
            "RETURNING next_offset, claim"
        )
        self._lock = (
            f"SELECT topic, kafka_partition, next_offset, claim, generation FROM {table} WHERE scope = :scope "
            f"AND (topic, kafka_partition) IN ({partitions}) ORDER BY topic, kafka_partition{dialect.for_update}"
        )
        # The rows are there: an INSERT that conflicts finds each by its key, where an UPDATE may search for it.
        self._advance = (
            f"INSERT INTO {table} "
            "(scope, topic, kafka_partition, next_offset, claim, owner, generation, changed_at_ms) "
            f"SELECT :scope, {dialect.field(0)}, {dialect.field(1, 'INTEGER')}, {dialect.field(2, 'BIGINT')}, 0, '', "
            f"0, {dialect.now_ms} FROM {dialect.each_row} WHERE true ON CONFLICT (scope, topic, kafka_partition) "
            "DO UPDATE SET next_offset = excluded.next_offset, changed_at_ms = excluded.changed_at_ms"
        )

    def claim(
        self, partitions: Collection[TopicPartition], generation: int = NO_GENERATION
    ) -> Mapping[TopicPartition, int]:
        claims, positions = {}, {}
        with self._database.transaction() as transaction:
            for partition in sorted(partitions):
                names = {"scope": self._scope, "topic": partition.topic, "partition": partition.partition}
                row = transaction.run(self._claim, {**names, "owner": self._owner, "generation": generation})[0]
                claims[partition] = row[1]
                if row[0] is not None:
                    positions[partition] = row[0]
        self._claims.update(claims)
        return positions

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._claims.pop(partition, None)

    def admit(self, transaction: Transaction, records: Sequence[Record], mark: Mark = DONE) -> list[Outcome]:
        partitions = sorted({TopicPartition(record.topic, record.partition) for record in records})
        reached = self._reached(transaction, partitions)
        outcomes = []
        for record in records:
            partition = (record.topic, record.partition)
            if record.offset >= reached[partition]:
                reached[partition] = record.offset + 1
                outcomes.append(Outcome.DONE)
            else:
                outcomes.append(Outcome.REPEATED)
        rows = [[*partition, next_offset] for partition, next_offset in reached.items()]
        transaction.run(self._advance, {"scope": self._scope, "rows": json.dumps(rows)})
        return outcomes

    def _reached(self, transaction: Transaction, partitions: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """How far each partition was worked on, as long as the claims on all of them hold."""
        strangers = [str(partition) for partition in partitions if partition not in self._claims]
        if strangers:
            raise NotClaimed(f"claim {', '.join(strangers)} before you work on it, and seek to where it says")
        rows = transaction.run(self._lock, {"scope": self._scope, "rows": json.dumps(partitions)})
        reached, fenced = {}, dict.fromkeys(partitions, NO_GENERATION)
        for topic, number, next_offset, claim, generation in rows:
            partition = TopicPartition(topic, number)
            fenced[partition] = generation
            if claim == self._claims[partition]:
                reached[partition] = next_offset or 0
                del fenced[partition]
        if fenced:
            raise PartitionFenced(fenced)
        return reached  # type: ignore[return-value]  # a TopicPartition is a tuple
