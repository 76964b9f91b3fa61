"""Token: a lease on each message, and a fencing token that the database checks when the effect is committed.

Whoever gets the lease gets a token higher than every one before, and announces it in the database. The effect may then
take its time without a lock on the message; its transaction ends with one statement that demands that no higher token
was announced meanwhile. So a worker that stalled, lost its lease and woke up again is refused. Leases only save work
that would be refused; that an effect happens once depends on the database alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from oncelog.once.database import Database, Transaction
from oncelog.once.dialect import Dialect
from oncelog.once.errors import LeaseHeld, LeaseLost
from oncelog.once.identity import SOURCES, Identities, IdOf, Key, first_of_each, run_for_each_source
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.once.strategy import Guard, Record, Strategy

if TYPE_CHECKING:
    from oncelog.once.redis_leases import RedisLeases

TOKENS = "tokens"
DEFAULT_LEASE_MS = 30_000
CATCH_UP_TRIES = 5


@dataclass(frozen=True, slots=True)
class Token(Strategy):
    """`lease_ms` should be longer than a batch takes. `leases` keeps leases on Redis instead of in the database."""

    id: IdOf | None = None
    lease_ms: int = DEFAULT_LEASE_MS
    leases: RedisLeases | None = None

    def bind(self, database: Database, scope: str) -> Guard:
        database.ensure((SOURCES, TOKENS))
        return _TokenGuard(database, scope, self)


class _Statements:
    def __init__(self, table: str, dialect: Dialect) -> None:
        granting = (
            f"INSERT INTO {table} AS stored (source, id, changed_at_ms, state, token, owner, expires_at_ms) "
            f"SELECT :source, value, {dialect.now_ms}, 'unprocessed', :token, :owner, {dialect.now_ms} + :lease_ms "
            f"FROM {dialect.each_value} WHERE true ON CONFLICT (source, id) DO UPDATE SET token = {{next_token}}, "
            "owner = excluded.owner, expires_at_ms = excluded.expires_at_ms, changed_at_ms = excluded.changed_at_ms "
            "WHERE stored.state = 'unprocessed' AND ({free}) RETURNING id, token"
        )
        self.lease = granting.format(
            next_token="stored.token + 1",
            free="stored.expires_at_ms <= excluded.changed_at_ms OR stored.owner = excluded.owner",
        )
        self.announce = granting.format(next_token="excluded.token", free="stored.token < excluded.token")
        self.in_use = (
            f"SELECT token FROM {table} WHERE source = :source AND id IN (SELECT value FROM {dialect.each_value}) "
            "AND state = 'unprocessed'"
        )
        # The rows are there: an INSERT that conflicts finds each by its key, where an UPDATE may search for it.
        own = (
            f"INSERT INTO {table} AS stored (source, id, changed_at_ms, state, reason, token, owner, expires_at_ms) "
            f"SELECT {dialect.field(0, 'BIGINT')}, {dialect.field(1)}, {dialect.now_ms}, :state, :reason, "
            f"{dialect.field(2, 'BIGINT')}, :owner, 0 FROM {dialect.each_row} WHERE true "
            "ON CONFLICT (source, id) DO UPDATE SET {changes} "
            "WHERE stored.token = excluded.token AND stored.state = 'unprocessed' RETURNING id"
        )
        self.finish = own.replace(
            "{changes}",
            "state = excluded.state, reason = excluded.reason, changed_at_ms = excluded.changed_at_ms",
        )
        self.release = own.replace("{changes}", "expires_at_ms = 0")


class _TokenGuard(Guard):
    table = TOKENS

    def __init__(self, database: Database, scope: str, strategy: Token) -> None:
        self._database = database
        self._scope = scope
        self._identities = Identities(database, scope, strategy.id)
        self._lease_ms = strategy.lease_ms
        self._leases = strategy.leases
        self._owner = uuid4().hex
        self._sql = _Statements(database.tables.name(TOKENS), database.dialect)
        self._granted: dict[Key, int] = {}
        self._mark = DONE

    # --- leases, before the effects' transaction ---------------------------------------------------------------

    def prepare(self, records: Sequence[Record]) -> None:
        self._granted = {}
        self._identities.learn(records)
        keys = set(self._identities.keys(records))
        if self._leases is None:
            self._granted = self._grant(self._sql.lease, keys, 1)
        else:
            self._lease_on_redis(self._leases, keys)

    def _lease_on_redis(self, leases: RedisLeases, keys: set[Key]) -> None:
        for _ in range(CATCH_UP_TRIES):
            token = leases.acquire(self._scope, self._owner, keys, self._lease_ms)
            self._granted = dict.fromkeys(keys, token)  # to be released if announcing them fails
            try:
                self._granted = self._grant(self._sql.announce, keys, token)
            except _TokenBehind as behind:
                # Redis has lost its memory, and counts anew: its next token must be higher than all that the database
                # saw.
                leases.release(self._scope, self._owner, keys)
                leases.catch_up(self._scope, behind.token)
            else:
                return
        raise LeaseHeld("tokens in the database grow faster than Redis gives them out; ask again a little later")

    def _grant(self, statement: str, keys: set[Key], token: int) -> dict[Key, int]:
        """Tokens of all that nobody has dealt with. Gets all of them, or none and raises."""
        values = {"token": token, "owner": self._owner, "lease_ms": self._lease_ms}
        with self._database.transaction() as transaction:
            rows = run_for_each_source(transaction, statement, keys, **values)
            granted = {(source, row[0]): int(row[1]) for source, row in rows}
            others = run_for_each_source(transaction, self._sql.in_use, keys - granted.keys())
            if others and self._leases is None:
                raise LeaseHeld(f"another worker holds the leases of {len(others)} messages; ask again a little later")
            if others:
                raise _TokenBehind(max(row[0] for _, row in others))
        return granted

    # --- the effects' transaction ------------------------------------------------------------------------------

    def admit(self, transaction: Transaction, records: Sequence[Record], mark: Mark = DONE) -> list[Outcome]:
        self._mark = mark
        return first_of_each(self._identities.keys(records), set(self._granted))

    def confirm(self, transaction: Transaction) -> None:
        if not self._granted:
            return
        confirmed = transaction.run(self._sql.finish, self._granted_rows(self._mark))
        if len(confirmed) != len(self._granted):
            lost = len(self._granted) - len(confirmed)
            raise LeaseLost(
                f"{lost} leases went to another worker meanwhile: nothing was done, ask again a little later"
            )

    def settle(self, is_committed: bool) -> None:
        granted = self._granted
        if granted and self._leases is not None:
            # What cannot be released now ends by itself.
            with contextlib.suppress(*self._leases.outages):
                self._leases.release(self._scope, self._owner, granted)
        elif granted and not is_committed:
            self._release()
        self._granted = {}

    def _release(self) -> None:
        try:
            with self._database.transaction() as transaction:
                transaction.run(self._sql.release, self._granted_rows(Mark("unprocessed")))
        except Exception as error:
            if not self._database.is_outage(error):
                raise

    def _granted_rows(self, mark: Mark) -> dict[str, Any]:
        rows = [[*key, token] for key, token in sorted(self._granted.items())]
        return {"rows": json.dumps(rows), "owner": self._owner, "state": mark.state, "reason": mark.reason}

    def is_outage(self, error: BaseException) -> bool:
        return self._leases is not None and isinstance(error, self._leases.outages)


class _TokenBehind(Exception):
    def __init__(self, token: int) -> None:
        self.token = token
