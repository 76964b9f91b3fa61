"""Hundreds of thousands of damaged requests against a live broker, while a well-behaved client checks its answers."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import uvloop

from tests.hostile import captures
from tests.hostile.mutator import Mutated, Mutator
from tests.support.batches import make_batch, read_records
from tests.support.broker import OncelogBroker
from tests.support.kafka import KafkaBroker
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient, encode_request
from tests.support.requests import create_topic, fetch, list_offset, produce
from tests.support.sizes import IS_SOAK

MUTATIONS = 200_000 if IS_SOAK else 30_000
ROUND = 10_000
DEFAULT_SEED = 8
CONNECTIONS = 24
PIPELINE = 24
ANSWER_TIMEOUT_S = 1.0
MEMORY_TOLERANCE_BYTES = 24 << 20
# A flipped bit may ask for thousands of partitions; their memory is kept for the next ones once they are deleted.
PARTITION_BYTES = 8 << 10
SETTLE_S = 60
ALARMS = ("Traceback", "never retrieved", "Unhandled", "unhandled", "CRITICAL")
CANARY_PAUSE_S = 0.01


class Canary(threading.Thread):
    """A good client: writes one numbered record after another and reads each back, all the time."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.checks = 0
        self.failure: BaseException | None = None
        self._address = address
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            with RawClient(self._address) as client:
                create_topic(client, "canary")
                while not self._stop_asked.wait(CANARY_PAUSE_S):
                    self._check(client)
        except BaseException as failure:
            self.failure = failure

    def _check(self, client: RawClient) -> None:
        value = b"number %d" % self.checks
        batch = make_batch([value], producer_id=2**62, epoch=0, sequence=self.checks)
        answers = [produce(client, "canary", batch) for _ in range(2)]
        assert [(each["error_code"], each["base_offset"]) for each in answers] == [(0, self.checks)] * 2
        (record,) = read_records(fetch(client, "canary", self.checks)["records"])
        assert (record.offset, record.value) == (self.checks, value)
        assert list_offset(client, "canary", -1)["offset"] == self.checks + 1
        self.checks += 1

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()
        assert self.failure is None, repr(self.failure)


class Attack:
    """Sends mutations over many pipelined connections; counts how each of them was disposed of."""

    def __init__(
        self, address: tuple[str, int], mutations: Iterator[Mutated], answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self._address = address
        self._mutations = mutations
        self._answer_timeout_s = answer_timeout_s

    async def run(self) -> None:
        await asyncio.gather(*(self._work() for _ in range(CONNECTIONS)))

    async def _work(self) -> None:
        while pipeline := list(islice(self._mutations, PIPELINE)):
            while pipeline:
                disposed = await self._exchange(_up_to_a_lie(pipeline))
                pipeline = pipeline[disposed:]

    async def _exchange(self, pipeline: list[Mutated]) -> int:
        """Send all, see how far the broker got: it answers in order, and what follows the last answer it refused."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            ends_stream = pipeline[-1].ends_stream
            data = b"".join(mutated.frame(index) for index, mutated in enumerate(pipeline))
            if not ends_stream:
                # Some requests have no answer (acks=0); this one's answer says that all before it were dealt with.
                data += _question(len(pipeline))
            writer.write(data)
            if ends_stream:
                writer.write_eof()
            return await self._count_answers(reader, len(pipeline))
        except OSError:
            self.outcomes["reset"] += 1
            return 1
        finally:
            writer.close()

    async def _count_answers(self, reader: asyncio.StreamReader, sent: int) -> int:
        disposed = 0
        try:
            while disposed < sent:
                async with asyncio.timeout(self._answer_timeout_s):
                    size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
                    await reader.readexactly(size - 4)
                assert disposed <= correlation_id <= sent, "answers out of order"
                self.outcomes["answered"] += 1
                self.outcomes["unanswered"] += min(correlation_id, sent) - disposed
                disposed = min(correlation_id + 1, sent)
        except TimeoutError:
            self.outcomes["waiting"] += 1
            disposed += 1
        except (asyncio.IncompleteReadError, OSError):
            self.outcomes["closed"] += 1
            disposed += 1
        return disposed


@cache
def _question(correlation_id: int) -> bytes:
    return encode_request("api_versions", 0, {}, correlation_id)


def _up_to_a_lie(pipeline: list[Mutated]) -> list[Mutated]:
    lie = next((index for index, mutated in enumerate(pipeline) if mutated.ends_stream), len(pipeline))
    return pipeline[: lie + 1]


@pytest.fixture
def victim(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of its own: the damage includes topics and configs that no other test should meet."""
    kinds = {"oncelog": OncelogBroker, "kafka": KafkaBroker}
    kind = (request.config.getoption("--brokers") or "oncelog").split(",")[0]
    with kinds[kind](tmp_path) as broker:
        yield broker


def _attack(broker: BrokerProcess, mutator: Mutator, rounds: int) -> tuple[Counter[str], int]:
    """What became of the requests, and the most partitions that there were at the end of a round."""
    outcomes: Counter[str] = Counter()
    most_partitions = 0
    for _ in range(rounds):
        attack = Attack(broker.address, mutator.mutations(ROUND))
        uvloop.run(attack.run())
        outcomes += attack.outcomes
        most_partitions = max(most_partitions, _restore_topics(broker))
    return outcomes, most_partitions


def _restore_topics(broker: BrokerProcess) -> int:
    """Delete the topics that damaged requests made or changed, bring back the lost; how many partitions there were."""
    wanted = captures.topics()
    with RawClient(broker.address, timeout_s=60) as client:
        found = {
            topic["name"]: len(topic["partitions"])
            for topic in client.request("metadata", 12, {"topics": None})["topics"]
            if topic["name"] != "canary"
        }
        strange = [{"name": name} for name, partitions in found.items() if wanted.get(name) != partitions]
        client.request("delete_topics", 6, {"topics": strange, "timeout": 30_000})
        for name, partitions in wanted.items():
            if found.get(name) != partitions:
                create_topic(client, name, partitions=partitions)
    return sum(found.values())


@pytest.mark.timeout(900)
def test_damaged_requests(victim: BrokerProcess) -> None:
    seed = int(os.environ.get("ONCELOG_SEED", DEFAULT_SEED))
    print(f"ONCELOG_SEED={seed}")
    mutator = Mutator(captures.load(victim.address), seed)
    canary = Canary(victim.address)
    canary.start()
    _attack(victim, mutator, rounds=1)
    before = victim.rss_bytes
    outcomes, most_partitions = _attack(victim, mutator, rounds=MUTATIONS // ROUND)
    canary.finish()
    print(f"{outcomes.total()} requests: {dict(outcomes)}; the canary checked {canary.checks} times")

    assert outcomes.total() >= MUTATIONS
    assert outcomes["answered"] > MUTATIONS / 10, "most mutations were refused at the door and proved little"
    assert outcomes["closed"] > MUTATIONS / 100
    assert canary.checks >= 2 * (MUTATIONS // ROUND), "it was hardly ever asked"
    assert victim.running
    assert not alarms_in(victim)
    await_memory(victim, before + MEMORY_TOLERANCE_BYTES + PARTITION_BYTES * most_partitions)


def alarms_in(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log.splitlines() if any(alarm in line for alarm in ALARMS)]


def await_memory(broker: BrokerProcess, limit_bytes: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while broker.rss_bytes > limit_bytes:
        assert time.monotonic() < deadline, f"{broker.rss_bytes >> 20} MiB, allowed {limit_bytes >> 20} MiB"
        time.sleep(0.2)
