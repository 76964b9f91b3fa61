"""Records whose effect fails for good: into the database with their mark, and from there to the dead-letter topic.

The dead letter is written in the transaction that marks its message as failed, so there is one exactly if the message
failed. `ship` sends it later, with an idempotent producer, and notes that. Whatever comes between the broker's storing
it and the note (a crash, a delivery that fails) sends it again, with the same `oncelog.dead.id`.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.once.database import Database, Row, Transaction
from oncelog.once.errors import OnceError
from oncelog.once.identity import place
from oncelog.once.outcome import Outcome
from oncelog.once.shipment import Shipment, in_thread
from oncelog.once.strategy import Record

logger = logging.getLogger(__name__)

DEAD_LETTERS = "dead_letters"
SHIPMENT = 100
CLAIM_MS = 300_000
"""How long one runner has for a shipment before another may take it up. Who still waits for a producer says so."""
RENEWAL_S = CLAIM_MS / 1000 / 5
"""How old a claim is when it is renewed: a producer may try for longer than one lasts (`delivery.timeout.ms`)."""
HEADER = "oncelog.dead."
MAX_REASON = 4_000

Serialize = Callable[[Any], bytes | None]


def as_bytes(content: Any) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    raise OnceError(
        f"a dead letter needs bytes, not {type(content).__name__}: give DeadLetter a key_serializer and a "
        "value_serializer that undo what the consumer's deserializers did"
    )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where records go whose effect failed for good. The producer is yours: idempotent, without serializers."""

    producer: Any
    topic: str
    key_serializer: Serialize = as_bytes
    value_serializer: Serialize = as_bytes

    def __post_init__(self) -> None:
        config = getattr(self.producer, "config", None)
        if config is not None and not (config.enable_idempotence and config.takes_bytes):
            raise OnceError("a DeadLetter needs a producer with idempotence (the default) and without serializers")


class DeadLetters:
    """The dead letters of one scope."""

    def __init__(self, database: Database, scope: str, destination: DeadLetter) -> None:
        database.ensure((DEAD_LETTERS,))
        self._database = database
        self._scope = scope
        self._destination = destination
        self._shipment: Shipment | None = None
        """Of which somebody has to hear yet."""
        self._claimed_at = 0.0
        self._is_going_well = True
        """Whatever is known of the shipment is stored."""
        table, dialect = database.tables.name(DEAD_LETTERS), database.dialect
        # A message that was opened again by hand may fail again: its letter is renewed, and sent again.
        self._write = (
            f"INSERT INTO {table} (scope, topic, kafka_partition, kafka_offset, timestamp_ms, key, value, headers, "
            "reason, attempts, failed_at_ms, claimed_until_ms) VALUES (:scope, :topic, :partition, :offset, "
            f":timestamp_ms, :key, :value, :headers, :reason, :attempts, {dialect.now_ms}, 0) "
            "ON CONFLICT (scope, topic, kafka_partition, kafka_offset) DO UPDATE SET reason = excluded.reason, "
            "attempts = excluded.attempts, failed_at_ms = excluded.failed_at_ms, claimed_until_ms = 0, "
            "sent_at_ms = NULL"
        )
        self._find = (
            f"SELECT 1 FROM {table} WHERE scope = :scope AND topic = :topic AND kafka_partition = :partition "
            "AND kafka_offset = :offset"
        )
        claimed = f"claimed_until_ms = {dialect.now_ms} + {CLAIM_MS}"
        self._claim = (
            f"UPDATE {table} SET {claimed} WHERE number IN (SELECT number FROM "
            f"{table} WHERE scope = :scope AND sent_at_ms IS NULL AND claimed_until_ms <= {dialect.now_ms} "
            f"ORDER BY number LIMIT {SHIPMENT}{dialect.skip_locked}) RETURNING number, topic, kafka_partition, "
            "kafka_offset, timestamp_ms, key, value, headers, reason, attempts, failed_at_ms"
        )
        numbers = f"number IN (SELECT CAST(value AS BIGINT) FROM {dialect.each_value})"
        self._note = f"UPDATE {table} SET sent_at_ms = {dialect.now_ms} WHERE {numbers}"
        self._renew = f"UPDATE {table} SET {claimed} WHERE sent_at_ms IS NULL AND {numbers}"
        self._release = f"UPDATE {table} SET claimed_until_ms = 0 WHERE sent_at_ms IS NULL AND {numbers}"

    @property
    def topic(self) -> str:
        return self._destination.topic

    def write(self, transaction: Transaction, record: Record, reason: str, attempts: int) -> None:
        """In the transaction that marks the record as failed."""
        headers = [
            [name, None if value is None else base64.b64encode(value).decode()] for name, value in record.headers or ()
        ]
        values = {
            "scope": self._scope,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": self._destination.key_serializer(record.key),
            "value": self._destination.value_serializer(record.value),
            "headers": json.dumps(headers),
            "reason": reason,
            "attempts": attempts,
        }
        transaction.run(self._write, values)

    def write_unmarked(self, record: Record, reason: str, attempts: int) -> Outcome:
        """For a record that has no id to be marked by: its place in the log tells whether it was written before."""
        with self._database.transaction() as transaction:
            values = {"scope": self._scope, "topic": record.topic}
            if transaction.run(self._find, {**values, "partition": record.partition, "offset": record.offset}):
                return Outcome.REPEATED
            self.write(transaction, record, reason, attempts)
        return Outcome.DONE

    # --- to their topic ---------------------------------------------------------------------------------------------

    def ship(self, patience_s: float, now: float) -> bool:
        """Send some that wait, in order, and wait so long until they are stored; whether to go on at once. What cannot
        be sent now waits for another time; of what is on its way a later call notes what became of it."""
        shipment = self._shipment or self._begin(now)
        if shipment is None:
            return False
        try:
            shipment.look(patience_s)
        finally:
            self._note_fates(shipment, now)
        if shipment.unsettled:
            logger.info("%d dead letters of %s are on their way", len(shipment.unsettled), self._scope)
        return self._shipment is None and shipment.size == SHIPMENT and self._is_going_well

    @property
    def is_shipping(self) -> bool:
        """Of some nobody knows yet whether they are stored."""
        return self._shipment is not None

    def give_up(self) -> None:
        """Nobody waits any more: what the producer has not got stays in the database, free for whoever comes next."""
        if self._shipment is not None:
            self._shipment.give_up()
            self._shipment.look(0.0)
            self._note_fates(self._shipment, self._claimed_at)

    def _begin(self, now: float) -> Shipment | None:
        with self._database.transaction() as transaction:
            letters = sorted(transaction.run(self._claim, {"scope": self._scope}))
        if not letters:
            return None
        self._claimed_at, self._is_going_well = now, True
        self._shipment = Shipment(letters, self._send_one, self._scope, in_thread)
        return self._shipment

    def _note_fates(self, shipment: Shipment, now: float) -> None:
        """Those that are neither stored nor refused stay claimed until it is certain that they are not on their way any
        more."""
        stored, unsent, unsettled = list(shipment.stored), list(shipment.unsent), list(shipment.unsettled)
        is_claim_old = bool(unsettled) and now - self._claimed_at > RENEWAL_S
        if stored or unsent or is_claim_old:
            with self._database.transaction() as transaction:
                transaction.run(self._note, {"rows": json.dumps(stored)})
                transaction.run(self._release, {"rows": json.dumps(unsent)})
                if is_claim_old:
                    transaction.run(self._renew, {"rows": json.dumps(unsettled)})
            shipment.noted([*stored, *unsent])  # not before: whatever the database has not heard is noted next time
        if is_claim_old:
            self._claimed_at = now
        self._is_going_well = self._is_going_well and not unsent
        if not unsettled:
            self._shipment = None

    def _send_one(self, letter: Row) -> Any:
        _, topic, partition, offset, timestamp_ms, key, value, headers, reason, attempts, failed_at_ms = letter
        about = {
            "id": f"{self._scope}/{topic}/{partition}/{offset}",
            "scope": self._scope,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": timestamp_ms,
            "reason": reason,
            "attempts": attempts,
            "failed-at": failed_at_ms,
        }
        original = [(name, None if text is None else base64.b64decode(text)) for name, text in json.loads(headers)]
        added = [(HEADER + name, str(content).encode()) for name, content in about.items()]
        return self._destination.producer.send(
            self._destination.topic,
            value=None if value is None else bytes(value),
            key=None if key is None else bytes(key),
            headers=[*original, *added],
        )


def reason_of(error: BaseException, record: Record) -> str:
    """Why an effect failed, in one text."""
    return f"{type(error).__name__}: {error} (effect of {place(record)})".replace("\0", "")[:MAX_REASON]
