"""The audit of `oncelog audit` as an assertion: what a topic holds against what its records say was sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.audit.account import Audit, AuditReport, Counts
from oncelog.audit.ids import RecordId
from oncelog.cli.audit import HOW_TO_NUMBER, ISOLATION, audit_client, carried_id, ledger_of_topic, observe_topic
from oncelog.errors import InvalidConfig
from oncelog.printable import counted
from oncelog.records.kernel import ConsumerRecord

IdOf = Callable[[ConsumerRecord], tuple[str, int] | None]
"""The stream and number of a record, or None if it has none."""


@dataclass(frozen=True, slots=True)
class AuditedTopic:
    """What the audit of one topic found; `report` has it partition by partition."""

    topic: str
    report: AuditReport

    @property
    def counts(self) -> Counts:
        """`sent`, `stored`, `lost`, `duplicated`, `out_of_order` of all partitions together."""
        return self.report.total

    def assert_clean(self, stored: int | None = None) -> None:
        """Raises AssertionError if a record is lost, duplicated or out of order, and if there is nothing to judge by.

        Without knowing what was sent, a loss at the end of a stream cannot be seen: say how many records there must be
        (`assert_clean(stored=100)`), or audit against the topic they came from (`oncelog_audit(topic, sent=source)`).
        """
        __tracebackhide__ = True
        finding = self._finding(stored)
        if finding is not None:
            raise AssertionError("\n  ".join([f"{self.topic}: {finding}", *self._examples()]))

    def _finding(self, stored: int | None) -> str | None:
        counts = self.counts
        if not counts.clean:
            return f"{self._sums()} (sent {counts.sent}, stored {counts.stored})"
        if stored is not None and counts.stored != stored:
            return f"{counted(counts.stored, 'record')} with an id instead of {stored}"
        if counts.stored or stored == 0:
            return None
        if counts.unnumbered:
            return f"no record carries an id: {HOW_TO_NUMBER}, or tell oncelog_audit how to find it (id_of=...)"
        return "the topic is empty, so there is nothing to audit"

    def _sums(self) -> str:
        counts = self.counts
        misplaced = f", misplaced {counts.misplaced}" if counts.misplaced else ""
        return f"lost {counts.lost}, duplicated {counts.duplicated}, out of order {counts.out_of_order}{misplaced}"

    def _examples(self) -> list[str]:
        return [f"{each.partition}: {example}" for each in self.report.partitions for example in each.examples]


class Audits:
    """Audits topics of one cluster: `oncelog_audit(topic).assert_clean()`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def __call__(
        self, topic: str, *, sent: str | None = None, isolation: str = "read_committed", id_of: IdOf | None = None
    ) -> AuditedTopic:
        """Read the topic as it is now.

        `sent` names the topic that the records came from: what it holds is then what must be here. `id_of` finds the
        stream and number in records that carry no id of the audit's:
        `id_of=lambda record: (record.key.decode(), json.loads(record.value)["number"])`.
        """
        level = ISOLATION.get(isolation)
        if level is None:
            raise InvalidConfig(f"unknown isolation level {isolation!r}; there are {', '.join(sorted(ISOLATION))}")
        find = carried_id if id_of is None else _finder(id_of)
        ledger = None
        if sent is not None:
            with audit_client(self._bootstrap_servers) as client:
                ledger = ledger_of_topic(client, sent, level, find)
        audit = Audit(ledger)
        observe_topic(audit, self._bootstrap_servers, topic, level, find)
        return AuditedTopic(topic, audit.report())


def _finder(id_of: IdOf) -> Callable[[ConsumerRecord], RecordId | None]:
    def find(record: ConsumerRecord) -> RecordId | None:
        found = id_of(record)
        return None if found is None else RecordId(*found)

    return find
