"""Which Python the workers of Spark run, and whether it has oncelog: settled before anything is planned.

Spark starts `python3` unless `PYSPARK_PYTHON` names another one. Where a program runs in a virtual environment that is
often a Python without oncelog, and the first query ends in forty lines about a missing module. A shell: it asks that
Python. Planners and committers run on the driver's machine, so what is wrong here is wrong for every query; whether the
executors of a cluster have what they need, only a job can tell (`check_executors`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncelog.errors import OncelogError

VARIABLE: Final = "PYSPARK_PYTHON"
LOCAL: Final = "local"
NEEDED: Final = ("oncelog", "pyarrow")
ANSWER_TIMEOUT_S: Final = 60.0
"""For a Python to start on a busy machine, and to say what it has."""
EXECUTORS_TIMEOUT_S: Final = 60.0
PROBE: Final = (
    "import importlib.util as u, sys; "
    "print(*sys.version_info[:2], *(name for name in sys.argv[1:] if u.find_spec(name) is None))"
)
PAGE: Final = "docs/spark-cluster.md says how oncelog gets there"


class WorkersLackOncelog(OncelogError):
    """The Python of Spark's workers cannot run oncelog. Nothing was read or written."""


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """A Python as it describes itself."""

    program: str
    version: tuple[int, ...]
    missing: tuple[str, ...]
    """Of `NEEDED`."""

    def problem(self, driver_version: tuple[int, ...]) -> str | None:
        if self.missing:
            return f"has no {' and no '.join(self.missing)}"
        if self.version != driver_version:
            return f"is Python {_dotted(self.version)}, and this program's is {_dotted(driver_version)}"
        return None


def settle_python(context: Any) -> None:
    """Workers on this machine run this program's own Python, unless the user has named another. Raises
    WorkersLackOncelog if the one that Spark would run lacks oncelog."""
    if VARIABLE not in os.environ and context.master.startswith(LOCAL) and sys.executable:
        context.pythonExec = sys.executable
        return
    program = shutil.which(context.pythonExec)
    if program is None:
        raise WorkersLackOncelog(f"{_named(context.pythonExec)}, and there is no such program here. {_remedy(context)}")
    if _is_own(program):
        return
    problem = _ask(program, _python_path(context)).problem(sys.version_info[:2])
    if problem is not None:
        raise WorkersLackOncelog(f"{_named(context.pythonExec)} ({program}), which {problem}. {_remedy(context)}")


def check_executors(context: Any) -> None:
    """Has one executor of a cluster say what its Python has. One that does not answer in time is not waited for: there
    may be none yet. Raises WorkersLackOncelog."""
    answers: list[WorkerPython | Exception] = []
    asking = threading.Thread(target=_ask_executor, args=(context, answers), daemon=True)
    asking.start()
    asking.join(EXECUTORS_TIMEOUT_S)
    for answer in answers:
        problem = str(answer) if isinstance(answer, Exception) else answer.problem(sys.version_info[:2])
        if problem is not None:
            program = "" if isinstance(answer, Exception) else f" ({answer.program})"
            raise WorkersLackOncelog(
                f"the executors of {context.master} run {context.pythonExec!r}{program}, which {problem}: set "
                f"{VARIABLE} to a Python that has oncelog on every machine, or send it with the job; {PAGE}"
            )


def _ask_executor(context: Any, answers: list[WorkerPython | Exception]) -> None:
    needed = NEEDED

    def look(_: Iterator[int]) -> Iterator[tuple[str, tuple[int, ...], list[str]]]:
        """Travels as code: a worker that lacks oncelog cannot import it from here."""
        import importlib.util
        import sys

        lacks = [name for name in needed if importlib.util.find_spec(name) is None]
        yield sys.executable, tuple(sys.version_info[:2]), lacks

    try:
        ((program, version, missing),) = context.parallelize([0], 1).mapPartitions(look).collect()
        answers.append(WorkerPython(program, tuple(version), tuple(missing)))
    except Exception as error:  # Spark's, of any kind: a Python that does not start, another version of it
        lines = [line for line in str(error).splitlines() if line.strip()]
        answers.append(RuntimeError(f"does not work: {lines[0] if lines else type(error).__name__}"))


def _ask(program: str, path: Sequence[str]) -> WorkerPython:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    try:
        done = subprocess.run(
            [program, "-c", PROBE, *NEEDED],
            env=environment,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
            check=True,
        )
        major, minor, *missing = done.stdout.split()
        return WorkerPython(program, (int(major), int(minor)), tuple(missing))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise WorkersLackOncelog(
            f"Spark's workers would run {program}, which does not work as a Python ({error}): set {VARIABLE}"
        ) from None


def _python_path(context: Any) -> list[str]:
    """As Spark gives it to workers: what this program was started with, and the files of the job."""
    from pyspark import SparkFiles

    given = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    return [*given, *(os.path.join(SparkFiles.getRootDirectory(), name) for name in context._python_includes)]


def _is_own(program: str) -> bool:
    """Of one virtual environment, not only of one installation: a link to it elsewhere has other packages."""
    own = sys.executable
    return (
        bool(own)
        and os.path.dirname(os.path.abspath(program)) == os.path.dirname(os.path.abspath(own))
        and os.path.samefile(program, own)
    )


def _named(program: str) -> str:
    why = f"as {VARIABLE} says" if VARIABLE in os.environ else f"as {VARIABLE} is not set"
    return f"Spark's workers would run {program!r}, {why}"


def _remedy(context: Any) -> str:
    if context.master.startswith(LOCAL):
        return f"Set {VARIABLE}={sys.executable} before the session starts, or leave it unset"
    return f"Set {VARIABLE} to a Python that has oncelog here and on every executor; {PAGE}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
