"""A standalone Spark cluster on one machine: a master, and workers that are hosts of their own, 127.0.0.2 and so on.

Its processes have a clean environment: what an executor can import, it has from its Python or from the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from tests.spark.support.driver import command_line, session_members
from tests.support import spark
from tests.support.ports import unused_port

SPARK_HOME = Path(pyspark.__file__).parent
LIMIT_S = 120.0
MASTER_HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
MASTER_CLASS, WORKER_CLASS = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
INHERITED = ("PATH", "HOME", "LANG", "JAVA_HOME")


class SparkCluster:
    def __init__(self, folder: Path, hosts: Sequence[str] = WORKER_HOSTS, cores: int = 1) -> None:
        self._folder = folder
        self._hosts = hosts
        self._cores = cores
        self._port = unused_port(MASTER_HOST)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{MASTER_HOST}:{self._port}"

    def settings(self) -> dict[str, str]:
        """For a driver whose executors are here, one on each host."""
        return {
            "spark.master": self.master,
            "spark.executor.memory": "512m",
            "spark.executor.cores": str(self._cores),
            "spark.cores.max": str(self._cores * len(self._hosts)),
            "spark.executor.extraJavaOptions": f"{spark.QUICK_JVM} {spark.shared_classes()}",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
        }

    def start(self) -> None:
        at_master = ("--host", MASTER_HOST, "--port", str(self._port), "--webui-port", "0")
        self._start("master", MASTER_CLASS, *at_master)
        self._await_line("master", "I have been elected leader")
        for host in self._hosts:
            home = self._folder / host
            size = ("--cores", str(self._cores), "--memory", "1g", "--work-dir", str(home))
            self._start(host, WORKER_CLASS, "--host", host, "--webui-port", "0", *size, self.master)
        for host in self._hosts:
            self._await_line(host, "Successfully registered with master")

    def _start(self, name: str, main_class: str, *arguments: str) -> None:
        environment = {key: os.environ[key] for key in INHERITED if key in os.environ}
        environment |= {
            "SPARK_DAEMON_MEMORY": "256m",
            # The service for submissions would take a port of its own choice.
            "SPARK_DAEMON_JAVA_OPTS": f"{spark.QUICK_JVM} {spark.shared_classes()} -Dspark.master.rest.enabled=false",
            "SPARK_LAUNCHER_OPTS": spark.QUICK_JVM,
            "SPARK_LOCAL_IP": arguments[arguments.index("--host") + 1],
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._log(name), "ab") as log:
            command = [str(SPARK_HOME / "bin" / "spark-class"), main_class, *arguments]
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2_000:] for path in sorted(self._folder.glob("*.log")))

    def _await_line(self, name: str, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self._log(name).read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name} does not say {text!r} within {LIMIT_S} s:\n{self.log()}"
            time.sleep(0.05)

    def members(self) -> list[int]:
        return [pid for process in self._processes for pid in session_members(process.pid)]

    def executors(self) -> list[int]:
        """The JVMs in which tasks run."""
        return [pid for pid in self.members() if EXECUTOR_CLASS in command_line(pid)]

    def executor_of(self, worker: int) -> int | None:
        """The JVM that a Python worker works for: its parent's parent, or, without a daemon, its parent. None if the
        worker is gone: Spark ends the attempts that have lost."""
        executors, pid = self.executors(), worker
        while pid not in executors:
            try:
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                return None
            assert pid > 1, f"process {worker} works for none of {executors}"
        return pid

    def stop(self) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(LIMIT_S)

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        print(self.log())  # captured, and shown with a failure
        self.stop()
