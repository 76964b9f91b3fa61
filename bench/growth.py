"""What the rows of growth share: brokers with few and with many partitions, each of which holds a few records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import confluent_kafka

from bench.clients import CLIENT_TIMEOUT_S, create_topic
from bench.figures import OURS, Bounds, Figure, Progress
from bench.peers import running
from bench.rows.crowd import allow_open_files
from tests.support.process import BrokerProcess

TOPIC = "growth"
RECORDS = 3
"""In each partition."""
FILES = 4
"""That a partition may hold open."""


def called(partitions: int) -> str:
    return f"{partitions:,} partitions"


@contextlib.contextmanager
def filled(partitions: int, kind: str = OURS) -> Iterator[BrokerProcess]:
    """A broker with so many partitions, all of them written to."""
    allow_open_files(FILES * partitions + 1_000)
    with running(kind) as broker:
        create_topic(broker.bootstrap, TOPIC, partitions)
        write_to_each(broker, partitions)
        yield broker


def write_to_each(broker: BrokerProcess, partitions: int) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "queue.buffering.max.messages": 1_000_000,
        "message.timeout.ms": int(CLIENT_TIMEOUT_S * 1_000),
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings)
    for _ in range(RECORDS):
        for index in range(partitions):
            producer.produce(TOPIC, b"one of a few", partition=index)
            if index % 1_000 == 0:
                producer.poll(0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def growth(
    what: str,
    unit: str,
    sizes: tuple[int, int],
    rounds: int,
    bounds: Bounds | None,
    measure: Measure,
    progress: Progress,
    kind: str = OURS,
) -> Figure:
    """The same with few and with many partitions, in turns, on two brokers of a kind that run all the time."""
    samples: dict[int, list[float]] = {size: [] for size in sizes}
    with filled(sizes[0], kind) as small, filled(sizes[1], kind) as large:
        brokers = dict(zip(sizes, (small, large), strict=True))
        for turn in range(rounds):
            for size in sizes if turn % 2 == 0 else reversed(sizes):
                samples[size].append(measure(brokers[size], size))
                progress(f"{what}: {called(size)} {samples[size][-1]:,.3f} {unit}")
    few, many = sizes
    return Figure(
        f"{what} with {called(many)}", unit, {called(few): samples[few], OURS: samples[many]}, bounds, peer=called(few)
    )


Measure = Callable[[BrokerProcess, int], float]
"""Of a broker that has so many partitions."""
