"""Kafka's TransactionalMessageCopier, which its system tests use: a client in Java that consumes, copies and commits
its offsets in transactions, aborts some of them at random, and can be killed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.confluent import TIMEOUT_S, make_producer, send
from tests.support.kafka import QUICK_JVM, java_command
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import committed, end_offset, last_stable_offset

MAIN_CLASS = "org.apache.kafka.tools.TransactionalMessageCopier"
QUIET_JVM = (*QUICK_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
PARTITIONS = 2
"""Of the source and of the target: a copy has its original's partition."""
COUNT = 200
EVENS, ODDS = [*range(0, COUNT, PARTITIONS)], [*range(1, COUNT, PARTITIONS)]
PATIENCE_S = 120
MOST_BYTES = 1 << 20


def write_numbers(broker: BrokerProcess, source: str) -> None:
    """Even ones to the first partition, odd ones to the second; and others, in a transaction that is aborted."""
    producer = make_producer(broker, transactional_id=f"writes-{source}")
    producer.init_transactions(TIMEOUT_S)
    for prefix, end in ((b"", producer.commit_transaction), (b"never ", producer.abort_transaction)):
        producer.begin_transaction()
        send(producer, source, ({"value": b"%s%d" % (prefix, n), "partition": n % PARTITIONS} for n in range(COUNT)))
        end(TIMEOUT_S)


def once_stable(raw: RawClient, topic: str, counts: Sequence[int]) -> list[list[int]]:
    """What is committed in each partition of a topic, when that many are and nothing is open."""

    def is_done(index: int) -> bool:
        is_stable = last_stable_offset(raw, topic, index) == end_offset(raw, topic, index)
        return is_stable and len(committed(raw, topic, index)) >= counts[index]

    eventually(lambda: all(map(is_done, range(PARTITIONS))), f"{counts} records", PATIENCE_S)
    return [[int(value or b"") for value in committed(raw, topic, index)] for index in range(PARTITIONS)]


class Copier:
    """A process that tells how far it is."""

    def __init__(self, broker: BrokerProcess, topics: tuple[str, str], name: str, *options: str) -> None:
        source, target = topics
        self.transactional_id = f"{name}-{source}"
        said = {
            "--broker-list": broker.bootstrap,
            "--input-topic": source,
            "--output-topic": target,
            "--input-partition": "0",
            "--consumer-group": f"group-of-{source}",
            "--transactional-id": self.transactional_id,
            "--transaction-size": "10",
        }
        arguments = [word for pair in said.items() for word in pair]
        command = java_command(MAIN_CLASS, *arguments, *options, jvm=QUIET_JVM)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (until it is killed); nobody need read what it says
        self._process = subprocess.Popen(command, stdout=self._said)

    def processed(self) -> int:
        """The records that it has copied, as it said last."""
        said = os.pread(self._said.fileno(), MOST_BYTES, 0)
        return max(map(int, re.findall(rb'"totalProcessed":(\d+)', said)), default=0)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._said.close()


@contextmanager
def copiers(*each: Copier) -> Iterator[Sequence[Copier]]:
    try:
        yield each
    finally:
        for copier in each:
            copier.kill()
