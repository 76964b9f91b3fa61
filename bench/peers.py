"""The two brokers as the benchmarks run them: fresh directories, each with its own default settings."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.worker import environment
from tests.support.broker import OncelogBroker
from tests.support.kafka import KafkaBroker
from tests.support.process import BrokerProcess

KAFKA_JVM = ("-Xmx1G",)
"""The heap of Kafka's own start script, and otherwise the JVM's defaults."""

KAFKA_DEFAULTS = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "transaction.state.log.num.partitions": "50",
    "log.cleaner.dedupe.buffer.size": str(128 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(512 * 1024),
}
"""Undoes the savings that the tests' Kafka makes."""


def new_broker(kind: str, directory: Path, source: Path | None = None) -> BrokerProcess:
    if kind == "kafka":
        return KafkaBroker(directory, dict(KAFKA_DEFAULTS), jvm=KAFKA_JVM)
    return OncelogBroker(directory, env=environment(source))


@contextlib.contextmanager
def fresh(kind: str, source: Path | None = None) -> Iterator[BrokerProcess]:
    """A broker that is not started yet, in a directory that disappears afterwards. `source` is whose oncelog it is."""
    directory = Path(tempfile.mkdtemp(prefix=f"oncelog-bench-{kind}-"))
    broker = new_broker(kind, directory, source)
    try:
        yield broker
    finally:
        if broker.process is not None:
            broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running(kind: str, source: Path | None = None) -> Iterator[BrokerProcess]:
    with fresh(kind, source) as broker:
        broker.start()
        yield broker


@contextlib.contextmanager
def both_running() -> Iterator[dict[str, BrokerProcess]]:
    with running("kafka") as kafka, running("oncelog") as oncelog:
        yield {"kafka": kafka, "oncelog": oncelog}


def resident_mb(broker: BrokerProcess) -> float:
    """Resident memory of the broker and whatever processes it started, in MB."""
    return sum(resident_kb(pid) for pid in family(broker.pid)) / 1_000


def cpu_s(broker: BrokerProcess) -> float:
    """The processor time of all threads that the broker has now, in seconds."""
    times_ns = (int(path.read_text().split()[0]) for path in Path(f"/proc/{broker.pid}/task").glob("*/schedstat"))
    return sum(times_ns) / 1e9


def family(pid: int) -> Iterator[int]:
    """The process and all that it started, but for those that end meanwhile."""
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def resident_kb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1.024
    return 0.0
