"""oncelog's broker as a child process, exactly as a user starts it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.support.ports import unused_port
from tests.support.process import BrokerProcess

READY_TIMEOUT_S = 60
NODE_ID = 1  # as Apache Kafka in these tests, so that answers compare


class OncelogBroker(BrokerProcess):
    """`python -m oncelog broker`; a restart finds its port free, as nobody else may take it."""

    kind = "oncelog"

    def __init__(
        self,
        directory: Path,
        config: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        max_descriptors: int | None = None,
    ) -> None:
        super().__init__(directory)
        self.port = unused_port()
        self.config = dict(config or {})
        self.env = {**os.environ, **(env or {})}
        self.max_descriptors = max_descriptors

    def start(self) -> None:
        assert not self.running
        self.directory.mkdir(parents=True, exist_ok=True)
        limited = [] if self.max_descriptors is None else ["prlimit", f"--nofile={self.max_descriptors}"]
        command = [*limited, sys.executable, "-m", "oncelog", "broker", "--data", str(self.data_dir)]
        command += ["--listen", f"{self.host}:{self.port}", "--node-id", str(NODE_ID)]
        for key, value in self.config.items():
            command += ["-o", f"{key}={value}"]
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.env)
        self.port = self._await_ready()

    def _await_ready(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.1)
            if not readable:
                continue
            words = self.process.stdout.readline().split()
            if len(words) == 2 and words[0] == "ready":
                return int(words[1].rpartition(":")[2])
            if not words:
                break
        self.kill()
        raise AssertionError(f"the broker did not become ready:\n{self.log[-4000:]}")
