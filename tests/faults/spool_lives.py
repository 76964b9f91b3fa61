"""Producers that live until they are killed. Run as a process of its own, it forks one life after another.

The process imports everything once and has no threads, so that a fork is a fresh producer's process within a few
milliseconds. On each line of standard input it starts a life, kills it (SIGKILL) when its time is over, and answers
with a line once it is dead.

Its time begins at once, or, if it is to see something of life, when the first of its records is delivered.

A life sends numbered records as fast as it can to all partitions of a topic, in bursts, and writes down the number of
every record for which `send()` returned. Numbers grow from life to life, so that one stream per partition tells the
order of all.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from oncelog.client.delivery import OnDelivery
from oncelog.client.records import RecordMetadata
from oncelog.client.spool.errors import SpoolFull
from oncelog.producer.producer import Producer

NUMBERS_PER_LIFE = 1_000_000
MAX_BURST = 40
MAX_YOUTH_S = 20


def stream_of(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def live(order: dict[str, Any]) -> None:
    """Send until killed. What is written to the ledger was promised."""
    chance = random.Random(order["seed"])
    ledger = os.open(order["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    topic, partitions = order["topic"], order["partitions"]
    producer = Producer(order["bootstrap"], spool_dir=order["spool"], **order["settings"])
    on_delivery: OnDelivery | None = _telling(order["delivered"])
    numbers = [order["life"] * NUMBERS_PER_LIFE] * partitions
    while True:
        for _ in range(chance.randint(1, MAX_BURST)):
            partition = chance.randrange(partitions)
            value = f"{stream_of(topic, partition)}/{numbers[partition]} {'x' * chance.randint(0, 300)}"
            try:
                producer.send(topic, value, partition=partition, on_delivery=on_delivery)
            except SpoolFull:  # nothing was promised: brokers are slower than we are
                break
            on_delivery = None
            os.write(ledger, b"%d %d\n" % (partition, numbers[partition]))
            numbers[partition] += 1
        time.sleep(chance.random() * 0.004)


def _telling(path: str) -> OnDelivery:
    def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
        if error is None:
            Path(path).touch()

    return on_delivery


def await_delivery(path: Path) -> None:
    """Or long enough: a life that does not get there dies as well."""
    deadline = time.monotonic() + MAX_YOUTH_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.002)


def serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        Path(order["delivered"]).unlink(missing_ok=True)
        pid = os.fork()
        if not pid:
            try:
                live(order)
            except BaseException as error:
                print(f"life {order['life']} ended by itself: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
        if order["grows_up"]:
            await_delivery(Path(order["delivered"]))
        time.sleep(order["seconds"])
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        print("killed" if os.WIFSIGNALED(status) else "ended", flush=True)


class Lives:
    """The process that makes producers and kills them, seen from a test."""

    def __init__(self, directory: Path, *, bootstrap: str, topic: str, partitions: int) -> None:
        self.spool = directory / "spool"
        self.ledger = directory / "ledger"
        self._order = {
            "bootstrap": bootstrap,
            "topic": topic,
            "partitions": partitions,
            "spool": str(self.spool),
            "ledger": str(self.ledger),
            "delivered": str(directory / "delivered"),
        }
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.spool_lives"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def live_and_die(self, seconds: float, seed: int, settings: dict[str, Any], *, grows_up: bool = False) -> None:
        order = {**self._order, "life": self._count, "seconds": seconds, "seed": seed, "settings": settings}
        order["grows_up"] = grows_up
        self._count += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer == "killed", f"life {order['life']}: {answer or 'no answer'}; its stderr tells why"

    def promised(self) -> list[tuple[int, int]]:
        """(partition, number) of every record for which `send()` returned."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(int(partition), int(number)) for partition, number in (line.split() for line in lines)]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()


if __name__ == "__main__":
    serve()
