"""What happens to the broker, the processors, the members of the groups and Spark, and when. Pure.

A step is due when a share of the records has come so far: is acknowledged, or through Spark. The senders must not run
ahead of the script: behind each step that is still to come, only a little of the load may be sent. So every fault
strikes under load, however slow the machine is.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Act(Enum):
    KILL_BROKER = "kill -9 of the broker"
    KILL_PROCESSOR = "kill -9 of a processor, its results stored and not committed"
    KILL_MEMBERS = "kill -9 of a member of each group, right after it has booked a batch"
    SLEEP = "a member of each group sleeps with a batch in hand, until its partitions are another's"
    JOIN = "another member joins each group"
    LEAVE = "a member leaves each group"
    KILL_DRIVER = "kill -9 of Spark's driver inside a commit, which is decided and not carried out"
    KILL_WORKER = "kill -9 of a Spark task's process, its rows stored and not reported"


class Step(NamedTuple):
    share: float
    act: Act


CLIENT_STEPS = (
    Step(0.10, Act.KILL_MEMBERS),
    Step(0.15, Act.KILL_PROCESSOR),
    Step(0.20, Act.KILL_BROKER),
    Step(0.30, Act.JOIN),
    Step(0.35, Act.KILL_PROCESSOR),
    Step(0.40, Act.KILL_MEMBERS),
    Step(0.50, Act.KILL_BROKER),
    Step(0.55, Act.SLEEP),
    Step(0.60, Act.KILL_PROCESSOR),
    Step(0.65, Act.LEAVE),
    Step(0.70, Act.KILL_MEMBERS),
    Step(0.75, Act.KILL_PROCESSOR),
    Step(0.80, Act.KILL_BROKER),
)
PIPELINE_STEPS = (
    Step(0.10, Act.KILL_DRIVER),
    Step(0.30, Act.KILL_WORKER),
    Step(0.45, Act.KILL_BROKER),
    Step(0.65, Act.KILL_WORKER),
)
LEAD = 0.1
"""How much of the load may be sent beyond the next step."""


class Script:
    def __init__(self, records: int, steps: tuple[Step, ...], lead: float = LEAD) -> None:
        self.records = records
        self._steps = list(steps)
        self._lead = lead

    def due(self, reached: int) -> Act | None:
        """What is to be done now, if anything is."""
        if self._steps and reached >= self.records * self._steps[0].share:
            return self._steps[0].act
        return None

    def done(self) -> None:
        """What was due has been done: on to the next step."""
        self._steps.pop(0)

    @property
    def is_over(self) -> bool:
        return not self._steps

    @property
    def allowed(self) -> int:
        """How many records may be sent by now."""
        # One look at the list: the senders' threads ask while it is shortened.
        upcoming = self._steps[:1]
        return min(self.records, int(self.records * (upcoming[0].share + self._lead))) if upcoming else self.records
