"""Apache Kafka as a one-node KRaft broker in a child process, and Kafka's own command line tools."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support import parts
from tests.support.ports import unused_port
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

READY_TIMEOUT_S = 120
TOOL_TIMEOUT_S = 240
CLUSTER_ID = "b25jZWxvZy10ZXN0cy0wMQ"
# Short-lived JVMs: the first compiler tier alone and the serial collector start fastest on two cores.
QUICK_JVM = ("-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",  # else assignments come up to a second late
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.io.buffer.size": "262144",
}


def java_command(main_class: str, *arguments: str, jvm: tuple[str, ...] | None = None) -> list[str]:
    """The command line of a Java program from Apache Kafka's jars."""
    options = shared_jvm() if jvm is None else jvm
    return [str(parts.java()), *options, "-cp", f"{parts.kafka_libs()}/*", main_class, *arguments]


@functools.cache
def shared_jvm() -> tuple[str, ...]:
    """With Kafka's classes as a JVM keeps them in memory, so that others need not read them from the jars: they start
    in half the time. The first who needs one has a broker leave them behind. What does not fit is not used."""
    binary = parts.java().resolve().stat()
    archive = parts.CACHE / "kafka" / f"classes-{parts.KAFKA_VERSION}-{binary.st_size}-{binary.st_mtime_ns}.jsa"
    parts.kafka_libs()
    with parts.fetch_lock("classes"), tempfile.TemporaryDirectory() as folder:
        if not archive.exists():
            partial = archive.with_suffix(".partial")
            with KafkaBroker(Path(folder), jvm=(*QUICK_JVM, f"-XX:ArchiveClassesAtExit={partial}")):
                pass
            if partial.exists():  # else this JVM cannot do it, and the others go on without
                partial.rename(archive)
    quiet = ("-Xlog:disable", "-Xlog:all=warning:stderr")
    return (*QUICK_JVM, f"-XX:SharedArchiveFile={archive}", *quiet)


def run_tool(
    main_class: str,
    *arguments: str,
    text_in: str | None = None,
    check: bool = True,
    timeout_s: float = TOOL_TIMEOUT_S,
    jvm: tuple[str, ...] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; a failure shows what it said."""
    options = shared_jvm() if jvm is None else jvm
    command = java_command(main_class, *arguments, jvm=(*options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"))
    done = subprocess.run(command, input=text_in, capture_output=True, text=True, timeout=timeout_s, check=False)
    if check:
        assert done.returncode == 0, f"{main_class} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done


class KafkaBroker(BrokerProcess):
    """Apache Kafka, formatted at the first start; a restart listens on the same port."""

    kind = "kafka"

    def __init__(
        self, directory: Path, config: dict[str, str] | None = None, jvm: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(directory)
        self.config = {**SETTINGS, **(config or {})}
        self.jvm = jvm
        self.controller = ""
        self._properties = directory / "server.properties"

    def start(self) -> None:
        assert not self.running
        if not self._properties.exists():
            self._format()
        command = java_command("kafka.Kafka", str(self._properties), jvm=self.jvm)
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
        self._await_ready()

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = unused_port()
        settings = {**self.config, **self._places(), "log.dirs": str(self.data_dir)}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = ("-t", CLUSTER_ID, "-c", str(self._properties))
        # Without this feature `min.insync.replicas` has its plain default, which is what a new user sees elsewhere.
        features = ("--feature", "eligible.leader.replicas.version=0")
        jvm = None if self.jvm is None else QUICK_JVM
        run_tool("kafka.tools.StorageTool", "format", *options, *features, jvm=jvm)

    def _places(self) -> dict[str, str]:
        self.controller = f"{self.host}:{unused_port()}"
        return {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}",
            "controller.quorum.voters": f"1@{self.controller}",
        }

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self.running:
            with contextlib.suppress(OSError), RawClient(self.address) as client:
                if _serves(client):
                    return
            time.sleep(0.1)
        self.kill()
        raise AssertionError(f"Apache Kafka did not become ready:\n{self.log[-4000:]}")


class SecondKafkaBroker(KafkaBroker):
    """Another broker of the cluster whose first one, which is started before, is its controller as well."""

    NODE_ID = 2

    def __init__(self, directory: Path, first: KafkaBroker) -> None:
        config = {**first.config, "process.roles": "broker", "node.id": str(self.NODE_ID)}
        super().__init__(directory, config, first.jvm)
        self._first = first

    def _places(self) -> dict[str, str]:
        self.controller = self._first.controller
        return {"listeners": f"PLAINTEXT://{self.bootstrap}", "controller.quorum.voters": f"1@{self.controller}"}


def _serves(client: RawClient) -> bool:
    """The port opens before the broker leaves its fence, and the first producer id asks for a block of them."""
    listed = client.request("metadata", 12, {"topics": []})["brokers"]
    fresh = {"transactional_id": None, "transaction_timeout": 1_000, "producer_id": -1, "producer_epoch": -1}
    return bool(listed) and client.request("init_producer_id", 4, fresh)["error_code"] == 0
