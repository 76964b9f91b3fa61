"""A broker as a child process: started, watched until it serves, stopped, killed. What both kinds of broker share."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.support.patience import eventually

STOP_TIMEOUT_S = 60


class BrokerProcess:
    """A broker that listens on `host:port` and keeps its data in `data_dir`; `log_path` holds its stderr."""

    kind: str
    host = "127.0.0.1"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "stderr.log"
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return (self.host, self.port)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the broker's process alone."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self.pid)

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> int:
        """Ask politely (SIGTERM); returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stopped in its tracks (SIGSTOP), once this returns: the signal alone takes effect when it pleases."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: self._state == "T", f"{self.kind} stands still")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def _state(self) -> str:
        """Of the process's main thread, as Linux has it: running, sleeping, ... ; `T` is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.kind} did not stop within {STOP_TIMEOUT_S} s:\n{self.log[-4000:]}") from None
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process is not None:
            self.stop()
