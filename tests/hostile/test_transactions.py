"""Bad input to the transaction APIs: damaged requests of producers whose transactions are open.

Whatever of it the broker understands, it does; it keeps serving, is surprised by nothing, gives its memory back, and no
transaction stays open for ever.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.hostile.captures import Capture
from tests.hostile.mutator import Mutator
from tests.hostile.test_mutations import DEFAULT_SEED, Attack, Canary, alarms_in, await_memory
from tests.support.broker import OncelogBroker
from tests.support.groups import await_coordinator
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import API_KEYS, RawClient, encode_request
from tests.support.requests import create_topic
from tests.support.transactions import (
    RESTING,
    HandProducer,
    await_transactions,
    committed,
    end_offset,
    last_stable_offset,
    offset_of,
)

MARKERS = API_KEYS["write_txn_markers"]
TRANSACTION_APIS = {
    API_KEYS[api]
    for api in (
        *("produce", "init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "end_txn"),
        *("txn_offset_commit", "describe_transactions", "list_transactions", "write_txn_markers"),
    )
}
MUTATIONS, MARKER_MUTATIONS = 8_000, 1_000
ANSWER_TIMEOUT_S = 0.2
MEMORY_TOLERANCE_BYTES = 48 << 20
LONGEST_TRANSACTION_MS = 15_000
SETTINGS = {
    "transaction.max.timeout.ms": str(LONGEST_TRANSACTION_MS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "3",
}
TOPIC, MARKED, GROUP = "orders", "marked", "some-group"
PARTITIONS = 2


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of its own: nobody else should meet what is left of these transactions."""
    with OncelogBroker(tmp_path, SETTINGS) as broker:
        yield broker


class RecordingClient(RawClient):
    """Keeps what it sends, without the size."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.frames: list[bytes] = []

    def send_bytes(self, data: bytes) -> None:
        self.frames.append(data[4:])
        super().send_bytes(data)


def transactions_in_every_version(address: tuple[str, int]) -> list[bytes]:
    """What producers ask of the broker, each API in each version; most of them leave their transaction open."""
    client = RecordingClient(address)
    with client:
        await_transactions(client)
        await_coordinator(client, GROUP)
        topic_ids = {topic: create_topic(client, topic, partitions=PARTITIONS) for topic in (TOPIC, MARKED)}
        for version in range(6):
            for number in range(4):
                producer = HandProducer(client, f"writer-{version}-{number}", is_modern=version == 5)
                assert producer.init(version=version, timeout_ms=LONGEST_TRANSACTION_MS) == "none"
                producer.add((TOPIC, 0), (TOPIC, 1), version=version)
                producer.add_offsets(GROUP, version=min(version, 4))
                producer.produce(TOPIC, b"damaged", version=3 + 2 * version, topic_id=topic_ids[TOPIC])
                producer.commit_offsets(GROUP, (TOPIC, 0, 5), (TOPIC, 1, 7), version=version)
                producer.described()
                client.request("list_transactions", min(version, 2), {"state_filters": ["Ongoing"]})
                if number == 0:
                    producer.end(commit=True, version=version)
                else:
                    client.frames.append(end_of(producer, version))
    return client.frames


def end_of(producer: HandProducer, version: int) -> bytes:
    """Captured, but not sent before it is damaged."""
    body = {"transactional_id": producer.transactional_id, "producer_id": producer.producer_id}
    return encode_request("end_txn", version, {**body, "producer_epoch": producer.epoch, "committed": True})[4:]


def markers() -> list[bytes]:
    """Of a topic of their own: a marker with the epoch of a coordinator yet to come shuts out the one there is."""
    topics = [{"name": MARKED, "partition_indexes": [0, 1]}]
    marker = {"producer_id": 0, "producer_epoch": 0, "transaction_result": True, "topics": topics}
    return [encode_request("write_txn_markers", version, {"markers": [marker] * 2})[4:] for version in (1, 2)]


def captures(frames: list[bytes]) -> list[Capture]:
    captured = [Capture(*struct.unpack_from(">hh", frame), frame) for frame in frames]
    return sorted({one for one in captured if one.api_key in TRANSACTION_APIS})


def attack(broker: BrokerProcess, found: list[Capture], count: int, seed: int) -> None:
    attack = Attack(broker.address, Mutator(found, seed).mutations(count), ANSWER_TIMEOUT_S)
    uvloop.run(attack.run())
    print(f"{dict(attack.outcomes)}")
    assert attack.outcomes["answered"] > count / 10


def everything_ends(broker: BrokerProcess) -> None:
    """Within the longest time that a transaction may take, and however long that takes here."""
    with RawClient(broker.address) as client:

        def rests() -> bool:
            listed = client.request("list_transactions", 2, {})["transaction_states"]
            return bool(listed) and all(each["transaction_state"] in RESTING for each in listed)

        eventually(rests, "no transaction is open")
        for partition in range(PARTITIONS):
            assert last_stable_offset(client, TOPIC, partition) == end_offset(client, TOPIC, partition)


def transactions_work(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.address) as client:
        create_topic(client, topic, partitions=2)
        producer = HandProducer(client, f"writer of {topic}")
        eventually(lambda: producer.init(timeout_ms=LONGEST_TRANSACTION_MS) == "none", "a producer begins")
        for number in range(4):
            assert producer.produce(topic, b"%d" % number) == "none"
            assert producer.commit_offsets(topic, (topic, 0, number)) == ["none"]
            producer.ended(commit=number % 2 == 1)
        assert committed(client, topic) == [b"1", b"3"]
        assert offset_of(client, topic, topic, require_stable=True) == 3


@pytest.mark.timeout(600)
def test_damaged_requests(victim: BrokerProcess) -> None:
    seed = int(os.environ.get("ONCELOG_SEED", DEFAULT_SEED))
    print(f"ONCELOG_SEED={seed}")
    found = captures(transactions_in_every_version(victim.address))
    assert {capture.api_key for capture in found} == TRANSACTION_APIS - {MARKERS}
    canary = Canary(victim.address)
    canary.start()
    before = victim.rss_bytes
    attack(victim, found, MUTATIONS, seed)
    everything_ends(victim)
    transactions_work(victim, "after-requests")
    attack(victim, captures(markers()), MARKER_MUTATIONS, seed)
    transactions_work(victim, "after-markers")
    canary.finish()
    assert canary.checks > 0
    assert victim.running
    assert not alarms_in(victim)
    await_memory(victim, before + MEMORY_TOLERANCE_BYTES)
