"""The producer's promises, cell by cell: every fault x acks x requests in flight x idempotence, on both brokers.

With idempotence no cell may find anything, over more than a million records. Without it, what may go wrong is made to
go wrong: a cell whose promise does not cover a harm asserts that the audit sees it. Every cell draws from the seed that
a failure shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

import pytest

from oncelog.audit.account import Counts
from oncelog.faults import Rule
from tests.conftest import KINDS
from tests.faults.cell import PARTITIONS, Outcome, run_cell
from tests.support.confluent import create_topic
from tests.support.process import BrokerProcess
from tests.support.sizes import on_both_brokers_at_full_size

IN_FLIGHT = (1, 5)
ACKS = (0, 1, "all")
RECORDS = 6_000
ROWS = 14_000
BATCH_SIZE = 4_096  # about a hundred requests in each cell
PLAIN_RECORDS = 2_400
PLAIN_BATCH_SIZE = 1_024  # about fifty

ATTEMPTS = 5
"""A harm that must show is given as many chances: each strikes several times, and hardly ever in vain."""

SHORT_MS = 5
PASSED_BY_MS = 2_000
"""How long a frame waits for the one that overtakes it, where there will be one."""
PERHAPS_PASSED_BY_MS = 200
"""Where there is one most of the time: after a retry, a numbered request goes alone."""
NOT_PASSED_BY_MS = 30
REQUEST_TIMEOUT_MS = 250
ENDLESS_MS = 3 * REQUEST_TIMEOUT_MS


class Harm(Flag):
    NONE = 0
    LOST = auto()
    DOUBLED = auto()
    REORDERED = auto()


LOST, DOUBLED, REORDERED, NONE = Harm.LOST, Harm.DOUBLED, Harm.REORDERED, Harm.NONE


@dataclass(frozen=True)
class Trouble:
    """A fault, and the harm it does to a producer without idempotence: it must show, or it proves nothing."""

    make: Callable[..., Rule] | None
    counter: str = ""
    unacknowledged: Harm = NONE
    """With acks=0, whatever may be in flight: no answer is waited for. Where a connection ends, what it brought may be
    stored behind what comes with the next one, which the producer opens at once."""
    one: Harm = NONE
    five: Harm = NONE
    perhaps_one: Harm = NONE
    perhaps_five: Harm = NONE
    """What depends on how far other requests have come."""
    every: int = 9
    """By count, so that it surely happens; and by chance, so that no two runs are alike."""
    probability: float = 0.02
    options: tuple[tuple[str, Any], ...] = ()

    def rules(self, acks: object, in_flight: int, *, is_idempotent: bool = False) -> list[Rule]:
        if self.make is None:
            return []
        when: dict[str, Any] = {}
        if self.counter == "reordered":
            passed_by_ms = PERHAPS_PASSED_BY_MS if is_idempotent else PASSED_BY_MS
            when["within_ms"] = passed_by_ms if acks == 0 or in_flight > 1 else NOT_PASSED_BY_MS
        return [
            self.make("Produce", every=self.every, **when),
            self.make("Produce", probability=self.probability, **when),
        ]

    def harm(self, acks: object, in_flight: int) -> tuple[Harm, Harm]:
        """What must be seen, and what may."""
        if acks == 0:
            return self.unacknowledged, self.unacknowledged | (REORDERED if LOST in self.unacknowledged else NONE)
        if in_flight == 1:
            return self.one, self.one | self.perhaps_one
        return self.five, self.five | self.perhaps_five


def rule(name: str, **fixed: Any) -> Callable[..., Rule]:
    return lambda *apis, **when: getattr(Rule, name)(*apis, **fixed, **when)


TROUBLES = {
    "none": Trouble(None),
    "lost requests": Trouble(
        rule("drop_request", cut_after_ms=SHORT_MS), "dropped", unacknowledged=LOST, perhaps_five=DOUBLED
    ),
    "lost answers": Trouble(rule("drop_response", cut_after_ms=SHORT_MS), "dropped", one=DOUBLED, five=DOUBLED),
    "late requests": Trouble(rule("delay", ms=(1, 10)), "delayed"),
    "late answers": Trouble(rule("delay", ms=(1, 10), on="response"), "delayed"),
    "doubled requests": Trouble(
        rule("duplicate_request"), "duplicated", unacknowledged=DOUBLED, one=DOUBLED, five=DOUBLED
    ),
    "overtaking requests": Trouble(rule("reorder_requests"), "reordered", unacknowledged=REORDERED, five=REORDERED),
    "half requests": Trouble(rule("truncate_request"), "truncated", unacknowledged=LOST, perhaps_five=DOUBLED),
    "half answers": Trouble(rule("truncate_response"), "truncated", one=DOUBLED, five=DOUBLED),
    "cuts at requests": Trouble(rule("cut"), "cut", unacknowledged=LOST, perhaps_five=DOUBLED),
    "cuts at answers": Trouble(rule("cut", on="response"), "cut", one=DOUBLED, five=DOUBLED),
    "stalls": Trouble(rule("stall", ms=(1, 30)), "stalled"),
    # The request is sent again while the first one is still on its way, and arrives after it.
    "timeouts": Trouble(
        rule("stall", ms=ENDLESS_MS),
        "stalled",
        one=DOUBLED,
        five=DOUBLED,
        every=25,
        probability=0,
        options=(("request_timeout_ms", REQUEST_TIMEOUT_MS),),
    ),
    # What no correct broker does: the client hangs up on it, and what was in flight is sent again.
    "doubled answers": Trouble(rule("duplicate_response"), "duplicated", perhaps_one=DOUBLED, perhaps_five=DOUBLED),
    "overtaking answers": Trouble(rule("reorder_responses"), "reordered", five=DOUBLED),
}


def harm_in(counts: Counts) -> Harm:
    found = NONE
    if counts.lost:
        found |= LOST
    if counts.duplicated:
        found |= DOUBLED
    if counts.out_of_order:
        found |= REORDERED
    return found


def must_have_struck(trouble: Trouble, in_flight: int, outcome: Outcome) -> None:
    """Nothing overtakes where one is in flight."""
    if trouble.make is not None and (in_flight > 1 or trouble.counter != "reordered"):
        assert getattr(outcome.faults.total, trouble.counter), f"the faults did not happen\n{outcome}"


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("in_flight", IN_FLIGHT)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_with_idempotence_nothing_is_lost_doubled_or_reordered(
    broker: BrokerProcess, new_topic: Callable[[], str], rng: random.Random, trouble: str, in_flight: int
) -> None:
    topic, fault = new_topic(), TROUBLES[trouble]
    create_topic(broker, topic, partitions=PARTITIONS)
    outcome = run_cell(
        broker.bootstrap,
        topic,
        fault.rules("all", in_flight, is_idempotent=True),
        rng.getrandbits(32),
        records=RECORDS,
        rows=ROWS,
        batch_size=BATCH_SIZE,
        max_in_flight_requests_per_connection=in_flight,
        **dict(fault.options),
    )
    must_have_struck(fault, in_flight, outcome)
    assert outcome.audit.clean, outcome
    assert not outcome.failures, outcome
    assert outcome.total.sent == outcome.total.stored == RECORDS + ROWS, outcome


def test_these_are_more_than_a_million_records() -> None:
    assert len(KINDS) * len(TROUBLES) * len(IN_FLIGHT) * (RECORDS + ROWS) >= 1_000_000


@on_both_brokers_at_full_size
@pytest.mark.parametrize("in_flight", IN_FLIGHT)
@pytest.mark.parametrize("acks", ACKS)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_without_idempotence_what_may_go_wrong_does_and_nothing_else(
    broker: BrokerProcess, new_topic: Callable[[], str], rng: random.Random, trouble: str, acks: object, in_flight: int
) -> None:
    fault = TROUBLES[trouble]
    must, may = fault.harm(acks, in_flight)
    for _ in range(ATTEMPTS):
        topic = new_topic()
        create_topic(broker, topic, partitions=PARTITIONS)
        outcome = run_cell(
            broker.bootstrap,
            topic,
            fault.rules(acks, in_flight),
            rng.getrandbits(32),
            records=PLAIN_RECORDS,
            until=lambda counts: must in harm_in(counts) and (LOST in may or not counts.lost),
            batch_size=PLAIN_BATCH_SIZE,
            enable_idempotence=False,
            acks=acks,
            max_in_flight_requests_per_connection=in_flight,
            **dict(fault.options),
        )
        found = harm_in(outcome.total)
        assert found in may, f"{may} is all that may happen, and {found} did\n{outcome}"
        assert not outcome.failures, outcome
        if must in found:
            return
    raise AssertionError(f"{must} was to be seen, and {found} was, {ATTEMPTS} times\n{outcome}")
