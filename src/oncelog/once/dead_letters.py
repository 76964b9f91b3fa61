"""Records whose effect fails for good: into the database with their mark, and from there to the dead-letter topic.

The dead letter is written in the transaction that marks its message as failed, so there is one exactly if the message
failed. `ship` sends it later, with an idempotent producer, and notes that. Whatever comes between the broker's storing
it and the note (a crash, a database or a delivery that fails) sends it again, with the same `oncelog.dead.id`.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.client.delivery import NotDeliveredYet
from oncelog.errors import OncelogError
from oncelog.once.database import Database, Row, Transaction
from oncelog.once.errors import OnceError
from oncelog.once.identity import place
from oncelog.once.outcome import Outcome
from oncelog.once.strategy import Record

logger = logging.getLogger(__name__)

DEAD_LETTERS = "dead_letters"
SHIPMENT = 100
CLAIM_MS = 300_000
"""How long one runner has for a shipment before another may take it up: longer than a producer tries to deliver."""
SHIP_PATIENCE_S = 5.0
"""How long one shipment is waited for. A producer may need minutes while brokers are away, and a runner that waited
along would neither poll nor end."""
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
        self._claim = (
            f"UPDATE {table} SET claimed_until_ms = {dialect.now_ms} + {CLAIM_MS} WHERE number IN (SELECT number FROM "
            f"{table} WHERE scope = :scope AND sent_at_ms IS NULL AND claimed_until_ms <= {dialect.now_ms} "
            f"ORDER BY number LIMIT {SHIPMENT}{dialect.skip_locked}) RETURNING number, topic, kafka_partition, "
            "kafka_offset, timestamp_ms, key, value, headers, reason, attempts, failed_at_ms"
        )
        numbers = f"number IN (SELECT CAST(value AS BIGINT) FROM {dialect.each_value})"
        self._note = f"UPDATE {table} SET sent_at_ms = {dialect.now_ms} WHERE {numbers}"
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

    def ship_all(self) -> None:
        while self.ship():
            pass

    def ship(self) -> bool:
        """Send some that wait, in order; whether there may be more. What cannot be sent now waits for the next time."""
        with self._database.transaction() as transaction:
            letters = sorted(transaction.run(self._claim, {"scope": self._scope}))
        sent, unsent = self._send(letters)
        with self._database.transaction() as transaction:
            transaction.run(self._note, {"rows": json.dumps(sent)})
            transaction.run(self._release, {"rows": json.dumps(unsent)})
        return len(sent) == SHIPMENT

    def _send(self, letters: list[Row]) -> tuple[list[int], list[int]]:
        """The numbers of those that are stored, and of those that are not. Of the rest nobody knows yet: they stay
        claimed until it is certain that they are not on their way any more."""
        on_their_way, sent = [], []
        unsent = [letter[0] for letter in letters]
        try:
            for letter in letters:
                on_their_way.append((letter[0], self._send_one(letter)))
        except OncelogError as error:
            logger.warning("dead letters of %s wait in the database: %s", self._scope, error)
        patience_s = SHIP_PATIENCE_S
        for number, future in on_their_way:  # each has its own fate: one that failed says nothing of those behind it
            try:
                future.result(timeout=patience_s)
                sent.append(number)
                unsent.remove(number)
            except NotDeliveredYet as error:
                logger.warning("a dead letter of %s is on its way, or will be sent again: %s", self._scope, error)
                unsent.remove(number)
                patience_s = 0.0  # the others were waited for as well
            except OncelogError as error:
                logger.warning("a dead letter of %s waits in the database: %s", self._scope, error)
        return sent, unsent

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
