"""How long to wait before the next attempt. Pure: chance comes in as a number."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 0.05
LONGEST_S = 5.0


@dataclass(slots=True)
class Backoff:
    """Doubles with every failure, up to a bound; half of each wait is chance, so that many do not return at once."""

    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    failures: int = 0

    def next_s(self, chance: float) -> float:
        """`chance` between 0 and 1."""
        whole = min(self.longest_s, self.first_s * float(2**self.failures))
        self.failures = min(self.failures + 1, 32)
        return whole / 2 + whole / 2 * chance
