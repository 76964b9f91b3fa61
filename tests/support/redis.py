"""A real Redis server on loopback, in a temporary folder."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import redis

from tests.support import parts
from tests.support.ports import unused_port

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30


class RedisServer:
    host = "127.0.0.1"

    def __init__(self) -> None:
        self._binary = parts.redis_server()
        self._folder = Path(tempfile.mkdtemp(prefix="oncelog-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def client(self) -> redis.Redis:
        return redis.Redis(host=self.host, port=self.port)

    def start(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._try_to_start(self.port or unused_port(), deadline):
            log = (self._folder / "log").read_text()
            assert time.monotonic() < deadline, f"Redis did not start:\n{log[-2000:]}"

    def _try_to_start(self, port: int, deadline: float) -> bool:
        command = [str(self._binary), "--port", str(port), "--bind", self.host, "--dir", str(self._folder)]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen([*command, "--save", ""], stdout=log, stderr=log)
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(redis.ConnectionError), redis.Redis(host=self.host, port=port) as client:
                client.ping()
                self.port = port
                return True
            time.sleep(0.02)
        return False

    def kill(self) -> None:
        """With everything it knew: it keeps nothing on disk."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
