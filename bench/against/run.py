"""One run: both sides made, row after row measured, the table printed. Exit code 1 if anything is slower."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.against import report
from bench.against.build import Build, NoSuchBuildError, build, present
from bench.against.trials import TRIALS, Ground
from bench.against.turns import Limits, Result, Side, SideError, compare
from bench.figures import Progress
from bench.scale import AGAINST, QUICK
from tests.support.parts import PartMissingError

LIMITS = Limits()
MINUTES = {"attack": 3.0, "memory": 1.5, "recovery": 1.5, "consumer_memory": 1.5, "transactional_ids": 1.5}
"""Rows whose turns take longer get more time, so that there are enough of them."""
QUICK_LIMITS = Limits(rounds=1)
REASON_CHARACTERS = 200


def run(commit: str, rows: Sequence[str], progress: Progress, *, quick: bool = False) -> int:
    try:
        builds: dict[Side, Build] = {"then": build(commit, progress), "now": present()}
    except NoSuchBuildError as reason:
        progress(f"bench: {reason}")
        return 2
    progress(f"then: {builds['then'].commit}, now: {builds['now'].commit}")
    ground = Ground({side: made.source for side, made in builds.items()}, QUICK if quick else AGAINST)
    outcomes: dict[str, report.Outcome] = {}
    is_broken = False
    for row in rows:
        try:
            outcomes[row] = _measure(row, ground, progress, quick=quick)
        except SideError as failure:
            outcomes[row] = f"not measured: {_told(failure)}"
            is_broken = is_broken or failure.side == "now"
        except PartMissingError as reason:
            outcomes[row] = f"not measured: {reason}"
        if not quick:
            report.write_json(builds, {row: outcomes[row]})
    report.print_table(outcomes)
    is_slower = any(isinstance(outcome, Result) and outcome.slower() for outcome in outcomes.values())
    return 1 if is_broken or (is_slower and not quick) else 0


def _measure(row: str, ground: Ground, progress: Progress, *, quick: bool) -> Result:
    limits = QUICK_LIMITS if quick else Limits(LIMITS.rounds, 60.0 * MINUTES.get(row, LIMITS.seconds / 60.0))
    return compare(TRIALS[row](ground), limits, time.monotonic, lambda line: progress(f"{row}: {line}"))


def _told(failure: SideError) -> str:
    """Who could not do it, and the last thing that was said about it."""
    lines = [line.strip() for line in str(failure.reason).splitlines() if line.strip()]
    reason = lines[-1] if lines else repr(failure.reason)
    who = "the older commit" if failure.side == "then" else "THE PRESENT ONE"
    return f"{who} fails: {reason[:REASON_CHARACTERS]}"
