"""A Spark driver as a process that a test starts, watches, and kills with all that belongs to it.

What belongs to it is its session (as in `setsid`): the Python driver, the JVM, and Python's daemons and workers, though
each daemon has a process group of its own. Whoever is killed with SIGKILL leaves a JVM's workers behind for a moment;
with `spark.python.use.daemon=false`, for as long as they work. `kill` takes them all, but for those that are `spared`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.support import spark

LIMIT_S = 240.0
"""For one step of a driver, on a machine that has much else to do."""


def session_members(session: int) -> list[int]:
    """The processes of a session that are not dead yet."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, *numbers = (entry / "stat").read_text().rpartition(")")[2].split()
                if state != "Z" and int(numbers[2]) == session:
                    found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


class DriverFailed(AssertionError):
    """It ended, or said nothing, where an answer was due."""


class Driver:
    """Starts at once, in the background; `run` waits until it is ready."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], environment: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log_path = folder / "stderr.log"
        self._unread = b""
        self._is_ready = False
        command = [sys.executable, "-m", "tests.spark.support.driver_main"]
        command.append(json.dumps({**spark.local_settings(folder), **settings}))
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **spark.environment(), **environment},
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def members(self) -> list[int]:
        return session_members(self.pid)

    def workers(self, mark: str = "-m pyspark.") -> list[int]:
        """Its processes with this in their command line; by default Python's, which run for the JVM."""
        return [pid for pid in self.members() if mark in command_line(pid)]

    # --- commands -----------------------------------------------------------------------------------------------

    def run(self, plan: Mapping[str, Any]) -> str:
        """The id of the query, which runs from now on."""
        self.await_ready()
        answer = self._ask({"run": plan})
        if "query" not in answer:
            raise DriverFailed(answer["failed"])
        return str(answer["query"])

    def await_ready(self) -> None:
        if not self._is_ready:
            assert self._answer() == {"ready": True}
            self._is_ready = True

    def outcome(self) -> str | None:
        """Waits for the query's end: None, or why it failed."""
        self.say({"await": True})
        return self.heard_outcome()

    def heard_outcome(self) -> str | None:
        answer = self._answer()
        return None if "ended" in answer else str(answer["failed"])

    def is_running(self) -> bool:
        """Whether its query is; one that never began, or failed, is not."""
        self.await_ready()
        return bool(self._ask({"poll": True})["running"])

    def look_around(self, tasks: int) -> list[dict[str, Any]]:
        self.await_ready()
        answer = self._ask({"look": tasks})
        assert "seen" in answer, answer
        return list(answer["seen"])

    def stop_query(self) -> None:
        self._ask({"stop": True})

    def say(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self.say(command)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """The next line that is one; Spark says other things as well."""
        deadline = time.monotonic() + LIMIT_S
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        while True:
            line, separator, rest = self._unread.partition(b"\n")
            if separator:
                self._unread = rest
                if line.startswith(b"{"):
                    return dict(json.loads(line))
                continue
            if not select.select([stream], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise DriverFailed(f"the driver did not answer within {LIMIT_S} s:\n{self.log[-4000:]}")
            some = os.read(stream, 65536)
            if not some:
                raise DriverFailed(f"the driver ended:\n{self.log[-4000:]}")
            self._unread += some

    # --- its end ------------------------------------------------------------------------------------------------

    def kill(self, spared: Collection[int] = ()) -> None:
        """SIGKILL to all of it at once. Those who are `spared` are the caller's to end."""
        for pid in self.members():
            if pid not in spared:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait(LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while set(self.members()) - set(spared):
            assert time.monotonic() < deadline, "killed processes do not go away"
            time.sleep(0.01)
        self._close()

    def close(self) -> None:
        """As a user ends it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LIMIT_S)
        self.kill()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
