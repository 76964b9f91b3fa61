"""Moments at which a process may die, by name, so that a test can make it die there.

Without ONCELOG_MOMENTS in the environment, `reach` does nothing. With it, the variable names a folder. A file there
with the moment's name is taken by the first process that reaches the moment (renamed to `<moment>.reached`, its content
then the process's id), and says what happens:

    kill         this process dies at once, as by SIGKILL
    kill PID     that process does
    raise        an OSError
    hold         nothing, until `<moment>.release` is there
"""

from __future__ import annotations

import os
import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

VARIABLE: Final = "ONCELOG_MOMENTS"
HOLD_S: Final = 0.02
MAX_HOLD_S: Final = 600.0
_FOLDER: Final = os.environ.get(VARIABLE)


class Moment(StrEnum):
    # the topic sink
    PLANNING = "planning"  # the journal is taken over, nothing is finished yet
    PLANNED = "planned"
    ENTERING = "entering"  # a task is about to take its transactional id
    FENCED_IN = "fenced-in"  # a task has its producer id
    WRITING = "writing"  # a task has sent some rows
    FLUSHED = "flushed"  # all rows are stored, the task has not reported
    COMMITTING = "committing"  # the committer has taken the journal over
    DECIDED = "decided"
    ENDING = "ending"  # about to commit the slots
    ENDED_SOME = "ended-some"  # the first slots are committed, others may not be
    ENDED_ALL = "ended-all"
    DONE = "done"
    ABORTING = "aborting"
    COPYING = "copying"  # a salvage copy has begun
    COPIED = "copied"  # its records are stored, the journal does not name it yet
    COPY_DECIDED = "copy-decided"
    # the table sink
    TABLE_STAGED = "table-staged"
    TABLE_COMMITTING = "table-committing"
    TABLE_PUBLISHED = "table-published"


def reach(moment: Moment) -> None:
    if _FOLDER is not None:
        _act(Path(_FOLDER), moment)


def _act(folder: Path, moment: Moment) -> None:
    reached = folder / f"{moment}.reached"
    try:
        (folder / moment).rename(reached)
    except FileNotFoundError:
        return
    order, _, whom = reached.read_text().strip().partition(" ")
    reached.write_text(str(os.getpid()))
    if order == "raise":
        raise OSError(f"told to fail at the moment {moment.value!r}")
    if order == "kill":
        os.kill(int(whom) if whom else os.getpid(), signal.SIGKILL)
    give_up = time.monotonic() + MAX_HOLD_S
    while order == "hold" and not (folder / f"{moment}.release").exists() and time.monotonic() < give_up:
        time.sleep(HOLD_S)
