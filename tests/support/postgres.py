"""A real PostgreSQL server on loopback, in a temporary folder: started, stopped, killed, started again.

PostgreSQL refuses to run as root, so there it runs as the user that its Debian package made. Nothing is flushed to the
disk (`fsync=off`): these tests kill processes, they do not cut the power.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, create_engine

from tests.support import parts
from tests.support.ports import unused_port

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
CARELESS = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=40", "autovacuum=off")
USER = "postgres"


class PostgresServer:
    host = "127.0.0.1"

    def __init__(self, settings: tuple[str, ...] = CARELESS) -> None:
        self._settings = settings
        self._binary = parts.postgres()
        # Not in pytest's folders: those are closed to the user that the server runs as.
        self._folder = Path(tempfile.mkdtemp(prefix="oncelog-postgres-"))
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{USER}@{self.host}:{self.port}/postgres"

    def engine(self, **options: Any) -> Engine:
        return create_engine(self.url, **options)

    def connect(self) -> psycopg.Connection[Any]:
        return self._connect(self.port)

    def _connect(self, port: int) -> psycopg.Connection[Any]:
        return psycopg.connect(host=self.host, port=port, user=USER, dbname="postgres", autocommit=True)

    def start(self) -> None:
        if not self._data.exists():
            self._initialise()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._try_to_start(self.port or unused_port(), deadline):
            # The port was taken meanwhile; or, after a kill, memory is still held by the old server's last processes.
            assert time.monotonic() < deadline, f"PostgreSQL did not start:\n{self._log.read_text()[-4000:]}"

    def _try_to_start(self, port: int, deadline: float) -> bool:
        command = [str(self._binary), "-D", str(self._data), "-h", self.host, "-p", str(port)]
        command += ["-k", str(self._folder), *(part for setting in self._settings for part in ("-c", setting))]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_its_user())
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                self._connect(port).close()
                self.port = port
                return True
            time.sleep(0.02)
        return False

    def _initialise(self) -> None:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(USER)
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        command = [str(self._binary.parent / "initdb"), "-D", str(self._data), "-U", USER, "-A", "trust", "-N"]
        done = subprocess.run(
            [*command, "--locale=C", "--encoding=UTF8"], check=False, capture_output=True, **self._as_its_user()
        )
        assert done.returncode == 0, done.stderr.decode()

    def _as_its_user(self) -> dict[str, Any]:
        return {"user": USER, "group": USER, "extra_groups": [], "cwd": "/"} if os.geteuid() == 0 else {}

    def kill(self) -> None:
        """All its processes at once, as when the machine goes down."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # at once: nobody needs what it holds
            self._process.wait(STOP_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
