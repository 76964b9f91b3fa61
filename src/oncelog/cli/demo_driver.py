"""The demo's Spark driver from outside: started, caught at a moment and killed, told to end.

What belongs to it is its session (as in `setsid`): the Python driver, the JVM, and the Python workers that do the JVM's
work. A killed driver takes them all with it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from oncelog.cli.demo_lifetime import Lifetime, uncut
from oncelog.errors import OncelogError
from oncelog.spark.moments import VARIABLE, Moment

END_TIMEOUT_S = 120.0
WATCH_S = 0.01
MAX_SHOWN_CHARS = 8_000
JAVA_FRAME = re.compile(r"\t+(at |\.\.\. \d+ more)")
"""A line of a Java stack trace that says where; what it is about stands above."""
PROCESSES = Path("/proc")
PROGRAM = "oncelog.cli.demo_spark"
SLOW_START = b"Python worker failed to connect back"
"""What Spark says when it ends a query because a Python process took more than ten seconds to start. Only a machine
that is busy with something else is so slow, and whoever runs a pipeline starts it again."""
MAX_SLOW_STARTS = 3


class DriverFailed(OncelogError):
    """Spark's driver did not do as it should; the message shows the end of its log."""


def missing_parts() -> str | None:
    """What Spark lacks here, and how to get it."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return "pyspark is not installed (pip install 'oncelog[spark]')"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "there is no Java 17 or later (Debian: apt install openjdk-17-jre-headless)"
    return None


class Driver(Lifetime):
    """One after the other, each with the checkpoints that the one before has left."""

    def __init__(self, bootstrap_servers: str, source: str, target: str, folder: Path, program: str = PROGRAM) -> None:
        self._words = [bootstrap_servers, source, target, str(folder)]
        self._program = program
        self._slow_starts = 0
        self._folder = folder
        self._moments = folder / "moments"
        self._log = folder / "spark.log"
        self._started = folder / "started"
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        self._moments.mkdir(parents=True)
        self.start()

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        self._started.unlink(missing_ok=True)
        command = [sys.executable, "-m", self._program, *self._words, str(self._started)]
        places = {VARIABLE: str(self._moments), "TMPDIR": str(self._folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        with self._log.open("ab") as log, uncut():
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **places},
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether its queries are."""
        return self._started.exists()

    def check_alive(self) -> bool:
        """False if Spark gave up on a machine that is too busy, and another driver starts. Raises DriverFailed if this
        one ended for any other reason."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return True
        said = self._log.read_bytes()[self._log_begin :]
        if SLOW_START not in said or self._slow_starts == MAX_SLOW_STARTS:
            raise self._failure(f"ended with exit code {code} although it was not killed")
        self._slow_starts += 1
        self.kill()
        self.start()
        return False

    def set_trap(self, moment: Moment) -> None:
        """The next process of Spark that comes to the moment stays there."""
        (self._moments / f"{moment}.reached").unlink(missing_ok=True)
        order = self._moments / f"{moment}.order"
        order.write_text("hold")
        order.rename(self._moments / moment)

    def caught_at(self, moment: Moment) -> int | None:
        """The id of the process that is held there."""
        with suppress(FileNotFoundError, ValueError):  # a note that is not written yet is no number
            return int((self._moments / f"{moment}.reached").read_text())
        return None

    def kill(self) -> None:
        """SIGKILL to all of it at once."""
        assert self._process is not None
        deadline = time.monotonic() + END_TIMEOUT_S
        while members := _members(self._process.pid):
            for member in members:
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            self._process.poll()
            if time.monotonic() > deadline:
                raise self._failure("does not go away although it was killed")
            time.sleep(WATCH_S)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def finish(self) -> None:
        """Its queries work off what is there, and it ends in peace."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not end within {END_TIMEOUT_S:.0f} s") from None
        if code:
            raise self._failure(f"ended with exit code {code}")

    def _failure(self, what: str) -> DriverFailed:
        said = self._log.read_bytes()[self._log_begin :].decode(errors="replace").strip()
        telling = "\n".join(line for line in said.splitlines() if not JAVA_FRAME.match(line))
        return DriverFailed(f"the Spark driver {what}; its log ends with:\n{telling[-MAX_SHOWN_CHARS:]}")


def _members(session: int) -> list[int]:
    """The processes of a session that are not dead yet."""
    found = []
    for entry in PROCESSES.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, *numbers = (entry / "stat").read_text().rpartition(")")[2].split()
                if state != "Z" and int(numbers[2]) == session:
                    found.append(int(entry.name))
    return found
