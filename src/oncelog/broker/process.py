"""`oncelog.Broker`: the broker as a process of its own, for programs and tests that bring their broker along.

This module starts `oncelog broker`, waits until it serves, and ends it. It holds no broker logic and talks to the
broker only through its command line, its one line on stdout, and signals.

A broker never outlives the process that started it, not even when that process is killed: the child watches its
parent (a pidfd on Linux, a slow poll of the parent's id elsewhere). The kernel's own PR_SET_PDEATHSIG is not used
because it fires when the *thread* that started the child ends, and a pipe is not used because a forked sibling that
inherited its other end would keep the broker alive.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from oncelog.client import arguments as checked
from oncelog.client.settings import MAX_PORT
from oncelog.errors import OncelogError

START_TIMEOUT_MS = 60_000
"""Recovery of a large log after a crash happens before the broker is ready, hence the patience."""

STOP_TIMEOUT_MS = 30_000
PARENT_POLL_MS = 500
STDERR_TAIL_BYTES = 4_096
MAX_READY_LINE_BYTES = 4_096

PARENT_PID_VARIABLE = "ONCELOG_PARENT_PID"
"""Set for the child alone: whose end it must not outlive."""

SCRATCH_VARIABLE = "ONCELOG_PARENT_SCRATCH"
"""Set for the child alone: the temporary directory to remove if the parent was killed before it could."""


class BrokerFailed(OncelogError):
    """The broker's process ended, or did not become ready in time; the message shows the end of its log."""


class Broker:
    """A broker in a process of its own: `with oncelog.Broker() as broker: ... broker.bootstrap_servers ...`.

    Without `data_dir` the log lives in a temporary directory that disappears with the broker. `config` takes Kafka's
    keys (`{"num.partitions": 3}`).
    `port=0` picks a free port, which a later `start()` keeps, so that a broker which was stopped or killed comes back
    under the same address. `advertise` is the `HOST:PORT` that clients are told to connect to when something stands in
    between.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        advertise: str | None = None,
        config: Mapping[str, object] | None = None,
        start_timeout_ms: int = START_TIMEOUT_MS,
        stop_timeout_ms: int = STOP_TIMEOUT_MS,
    ) -> None:
        self.host: str = checked.text(host, "host")
        self.port: int = _port(port)
        self._advertise = None if advertise is None else checked.text(advertise, "advertise")
        self._config = checked.config_texts(config, "config", '{"num.partitions": 3}')
        self._start_timeout_ms = checked.whole_number(start_timeout_ms, "start_timeout_ms", least=0)
        self._stop_timeout_ms = checked.whole_number(stop_timeout_ms, "stop_timeout_ms", least=0)
        folder = None if data_dir is None else _folder(data_dir)
        self._owner_pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="oncelog-"))
        self.data_dir: Path = self._scratch / "data" if folder is None else folder
        self.log_path: Path = self._scratch / "broker.log"
        """What the broker wrote to stderr; removed by `close()`."""

    @property
    def bootstrap_servers(self) -> str:
        """What clients take as `bootstrap.servers`."""
        if self.port == 0:
            raise BrokerFailed("the broker has no address yet: call start(), or use it as a context manager")
        return self._advertise or f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._is_owner() and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and return once it serves."""
        if not self._is_owner():
            raise BrokerFailed("this broker belongs to the process that created it; create another one here")
        if self.running:
            raise BrokerFailed(f"the broker already runs as process {self.pid}")
        if not self._scratch.exists():
            raise BrokerFailed("this broker was closed; create another one")
        if self._process is not None:
            self._reap()
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                # A group of its own: Ctrl-C in a terminal is for the program, which then decides about its broker.
                process_group=0,
                env={**os.environ, PARENT_PID_VARIABLE: str(os.getpid()), SCRATCH_VARIABLE: str(self._scratch)},
            )
        try:
            self.port = self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """Stop the broker cleanly (SIGTERM; killed if that takes too long) and return its exit code.

        `start()` continues with the same data.
        """
        if self._process is None or not self._is_owner():
            return 0
        self._process.terminate()
        try:
            self._process.wait(self._stop_timeout_ms / 1_000)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again with the same data under the same address. After `kill()` it
        recovers, as after a crash."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker and remove what was temporary. Closing twice is fine."""
        if self._is_owner():
            self.stop()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def kill(self) -> None:
        """End the broker at once, as a crash would (SIGKILL). Data and address are kept for the next `start()`."""
        if self._process is not None and self._is_owner():
            self._process.kill()
            self._reap()

    def log_tail(self) -> str:
        """The end of what the broker wrote to stderr."""
        with contextlib.suppress(FileNotFoundError), open(self.log_path, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - STDERR_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A broker that was forgotten. The attribute is missing when __init__ failed.
        if hasattr(self, "log_path"):
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Broker belongs to one process; pass broker.bootstrap_servers to others instead")

    def __repr__(self) -> str:
        state = f"running as {self.pid}" if self.running else "not running"
        return f"<oncelog.Broker {self.host}:{self.port}, {state}>"

    def _is_owner(self) -> bool:
        """False in a forked child, which inherits this object but not the broker."""
        return os.getpid() == self._owner_pid

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "oncelog", "broker", "--data", str(self.data_dir)]
        command += ["--listen", f"{self.host}:{self.port}"]
        if self._advertise is not None:
            command += ["--advertise", self._advertise]
        for key, value in self._config.items():
            command += ["-o", f"{key}={value}"]
        return command

    def _await_ready(self, process: subprocess.Popen[bytes]) -> int:
        line = self._read_line(process)
        word, _, address = line.strip().partition(" ")
        port = address.rpartition(":")[2]
        if word != "ready" or not port.isdigit():
            raise BrokerFailed(f"the broker's first line should be 'ready HOST:PORT', not {line!r}{self._said()}")
        return int(port)

    def _read_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        deadline = time.monotonic() + self._start_timeout_ms / 1_000
        line = bytearray()
        while not line.endswith(b"\n") and len(line) < MAX_READY_LINE_BYTES:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([process.stdout], [], [], remaining)[0]:
                raise BrokerFailed(f"the broker was not ready within {self._start_timeout_ms} ms{self._said()}")
            chunk = process.stdout.read(MAX_READY_LINE_BYTES)
            if not chunk:
                code = process.wait()
                raise BrokerFailed(f"the broker ended with exit code {code} before it was ready{self._said()}")
            line += chunk
        return line.decode(errors="replace")

    def _said(self) -> str:
        tail = self.log_tail()
        return f"; it said:\n{tail}" if tail else ""

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code


def _port(given: object) -> int:
    port = checked.whole_number(given, "port", "a whole number, 0 for a free one", least=0)
    if port > MAX_PORT:
        raise ValueError(f"port is {MAX_PORT} or less, not {port}")
    return port


def _folder(given: object) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"data_dir is the path of a folder, not {checked.shown(given)}")
    return Path(given)


@contextlib.contextmanager
def following_parent() -> Iterator[None]:
    """In the child: what runs inside is stopped (SIGTERM) when the parent ends, and the parent's leftovers removed."""
    parent_pid, scratch = os.environ.pop(PARENT_PID_VARIABLE), os.environ.pop(SCRATCH_VARIABLE)
    orphaned = threading.Event()
    threading.Thread(target=_stop_with_parent, args=(int(parent_pid), orphaned), daemon=True).start()
    try:
        yield
    finally:
        if orphaned.is_set():
            shutil.rmtree(scratch, ignore_errors=True)


def _stop_with_parent(parent_pid: int, orphaned: threading.Event) -> None:
    _await_parent_end(parent_pid)
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_TIMEOUT_MS / 1_000)
    os._exit(1)


def _await_parent_end(parent_pid: int) -> None:
    descriptor = None
    if hasattr(os, "pidfd_open"):
        # An old kernel or a strict sandbox may refuse; the poll below works everywhere.
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(parent_pid)
    # Checked after the pidfd was opened: the parent may have ended, and its id been reused, before that.
    if os.getppid() == parent_pid and descriptor is not None:
        select.select([descriptor], [], [])
    while os.getppid() == parent_pid:
        time.sleep(PARENT_POLL_MS / 1_000)
