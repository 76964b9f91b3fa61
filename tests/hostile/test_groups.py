"""Bad input to the group APIs: damaged requests of real clients, and rubbish where members speak to each other.

The broker keeps serving, tells nobody of an error that it did not expect, and gives its memory back. A consumer of ours
that shares a group with a member that speaks rubbish says so or goes on, and never breaks.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import uvloop
from confluent_kafka.admin import AdminClient

from oncelog.client.consumer_errors import ConsumerClosed
from oncelog.consumer.consumer import Consumer
from oncelog.errors import OncelogError
from tests.consumer.scene import PROTOCOLS, create, join, numbered, read, write
from tests.hostile.captures import Capture
from tests.hostile.mutator import Mutator
from tests.hostile.test_mutations import DEFAULT_SEED, Attack, Canary, alarms_in, await_memory
from tests.support.broker import OncelogBroker
from tests.support.groups import (
    await_coordinator,
    commit_request,
    heartbeat_request,
    join_request,
    subscription,
    sync_request,
)
from tests.support.kafka_python import group_member
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import ConnectionClosedError, RawClient, encode_request
from tests.support.tap import Tap

GROUP_APIS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69)
MUTATIONS = 8_000
ANSWER_TIMEOUT_S = 0.2
MEMORY_TOLERANCE_BYTES = 48 << 20
TOPIC = "orders"
PARTITIONS = 3
RECORDS = 10

RUBBISH = {
    "nothing": b"",
    "one byte": b"\x00",
    "a version from the future": struct.pack(">h", 32767) + bytes(40),
    "a negative version": struct.pack(">h", -5) + bytes(20),
    "two billion topics": struct.pack(">hi", 0, 2**31 - 1),
    "a negative count": struct.pack(">hi", 0, -7) + bytes(10),
    "a topic beyond the end": struct.pack(">hih", 0, 1, 30_000) + b"abc",
    "null for a topic": struct.pack(">hih", 0, 1, -1) + struct.pack(">i", -1),
    "not UTF-8": struct.pack(">hih", 0, 1, 2) + b"\xff\xfe" + struct.pack(">i", -1),
    "two billion partitions": struct.pack(">hih1si", 1, 1, 1, b"t", 2**31 - 1),
    "noise": bytes(range(256)),
}


# --- damaged requests -------------------------------------------------------------------------------------------------


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Tap]]:
    """A broker of its own behind a tap: clients are told of the tap alone."""
    tap = Tap()
    advertised = f"PLAINTEXT://127.0.0.1:{tap.start()}"
    settings = {"advertised.listeners": advertised, "group.initial.rebalance.delay.ms": "0"}
    with OncelogBroker(tmp_path, settings) as broker:
        tap.connect(broker.address)
        yield broker, tap
    tap.stop()


def sessions(servers: str) -> None:
    """What members and administrators of groups do, with several clients."""
    plain = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "log_level": 0}
    for protocol in ("classic", "consumer"):
        consumer = confluent_kafka.Consumer({**plain, "group.id": f"librdkafka-{protocol}", "group.protocol": protocol})
        consumer.subscribe([TOPIC])
        eventually(lambda consumer=consumer: consumer.poll(0.1) is not None, "librdkafka reads")
        consumer.commit(asynchronous=False)
        consumer.close()
        with Consumer(servers, group_id=f"own-{protocol}", auto_offset_reset="earliest", **PROTOCOLS[protocol]) as own:
            own.subscribe(TOPIC)
            read(own, PARTITIONS * RECORDS)
            own.commit()
    python = group_member(servers, TOPIC, "python")
    eventually(lambda: bool(python.poll(100)), "kafka-python reads")
    python.commit()
    python.close()
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.list_consumer_groups().result(60)
    for future in admin.describe_consumer_groups(["python", "own-consumer"]).values():
        with contextlib.suppress(confluent_kafka.KafkaException):
            future.result(60)
    for future in admin.delete_consumer_groups(["python"]).values():
        future.result(60)


def made_by_hand() -> list[bytes]:
    """What those clients had no reason to ask, without the size."""
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    requests = [
        encode_request("offset_delete", 0, {"group_id": "own-classic", "topics": topics}),
        encode_request("consumer_group_describe", 1, {"group_ids": ["own-consumer", "none"]}),
        encode_request("describe_groups", 5, {"groups": ["own-classic"]}),
        encode_request("list_groups", 5, {"states_filter": ["Stable"], "types_filter": ["consumer"]}),
        encode_request("delete_groups", 2, {"groups_names": ["nobody"]}),
        encode_request("join_group", 5, join_request("by-hand", protocols=[{"name": "range", "metadata": b"x"}])),
        encode_request("offset_commit", 9, commit_request("by-hand", (TOPIC, 0, 3))),
        encode_request("consumer_group_heartbeat", 1, heartbeat_request("by-hand", "someone", 0)),
    ]
    return [request[4:] for request in requests]


def group_captures(frames: list[bytes]) -> list[Capture]:
    captured = [Capture(*struct.unpack_from(">hh", frame), frame) for frame in frames]
    return sorted({one for one in captured if one.api_key in GROUP_APIS})


@pytest.mark.timeout(600)
def test_damaged_requests(victim: tuple[BrokerProcess, Tap]) -> None:
    seed = int(os.environ.get("ONCELOG_SEED", DEFAULT_SEED))
    print(f"ONCELOG_SEED={seed}")
    broker, tap = victim
    create(broker, TOPIC, PARTITIONS)
    for index in range(PARTITIONS):
        write(broker, TOPIC, numbered(0, RECORDS), index)
    sessions(f"127.0.0.1:{tap.port}")
    found = group_captures([*tap.frames, *made_by_hand()])
    assert {capture.api_key for capture in found} == set(GROUP_APIS)
    canary = Canary(broker.address)
    canary.start()
    before = broker.rss_bytes
    attack = Attack(broker.address, Mutator(found, seed).mutations(MUTATIONS), ANSWER_TIMEOUT_S)
    uvloop.run(attack.run())
    canary.finish()
    print(f"{dict(attack.outcomes)}; the canary checked {canary.checks} times")
    assert attack.outcomes["answered"] > MUTATIONS / 10
    assert canary.checks > 0
    for protocol in PROTOCOLS:
        settings = {"group_id": f"after-{protocol}", "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
        with Consumer(broker.bootstrap, **settings) as consumer:
            consumer.subscribe(TOPIC)
            read(consumer, PARTITIONS * RECORDS)
    assert not alarms_in(broker)
    await_memory(broker, before + MEMORY_TOLERANCE_BYTES)


# --- rubbish between members ------------------------------------------------------------------------------------------


def join_with(client: RawClient, group: str, metadata: bytes, **fields: Any) -> dict[str, Any]:
    """A classic member that says this of itself; its JoinGroup answer."""
    asked = {"protocols": [{"name": "range", "metadata": metadata}], **fields}
    joined = client.request("join_group", 9, join_request(group, **asked))
    if joined["error_code"] == 79:  # MEMBER_ID_REQUIRED
        joined = client.request("join_group", 9, join_request(group, joined["member_id"], **asked))
    return dict(joined)


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_what_members_say_of_themselves(broker: BrokerProcess, new_topic: Callable[[], str], rubbish: str) -> None:
    """The broker looks into it only where it must: for offsets that may go, and where a group changes its protocol."""
    group, data = f"group-of-{new_topic()}", RUBBISH[rubbish]
    with RawClient(broker.address) as client:
        await_coordinator(client, group)
        joined = join_with(client, group, data)
        assert joined["error_code"] == 0, joined
        synced = client.request("sync_group", 5, sync_request(group, joined, {joined["member_id"]: data}))
        assert (synced["error_code"], synced["assignment"]) == (0, data)
        topics = [{"name": "a-topic", "partitions": [{"partition_index": 0}]}]
        client.request("offset_delete", 0, {"group_id": group, "topics": topics})
        client.request("describe_groups", 5, {"groups": [group]})
        client.request("consumer_group_heartbeat", 1, heartbeat_request(group, "newcomer", 0))
        committed = client.request("offset_commit", 9, commit_request(group, ("a-topic", 0, 1), member=joined))
        assert committed["topics"], committed
        client.request("leave_group", 5, {"group_id": group, "members": [{"member_id": joined["member_id"]}]})
    assert "Traceback" not in broker.log


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_our_leader_of_a_member_that_speaks_rubbish(
    broker: BrokerProcess, new_topic: Callable[[], str], rubbish: str
) -> None:
    topic = new_topic()
    create(broker, topic, PARTITIONS)
    settings = {"auto_offset_reset": "earliest", "partition_assignment_strategy": "range"}
    with Consumer(broker.bootstrap, group_id=topic, heartbeat_interval_ms=100, **settings) as consumer:
        consumer.subscribe(topic)
        join(consumer, PARTITIONS)
        with RawClient(broker.address) as client:
            said = [{"name": "range", "metadata": RUBBISH[rubbish]}]
            asked = join_request(topic, protocols=said, session_timeout=6_000)
            named = client.request("join_group", 9, asked)
            client.send("join_group", 9, {**asked, "member_id": named["member_id"]})
            polled_for(consumer, 0.4)
        write(broker, topic, numbered(0, RECORDS))
        eventually(lambda: reads(consumer), "it reads, when the other one is gone")


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_our_member_of_a_leader_that_speaks_rubbish(
    broker: BrokerProcess, new_topic: Callable[[], str], rubbish: str
) -> None:
    topic = new_topic()
    create(broker, topic, PARTITIONS)
    with RawClient(broker.address) as client:
        await_coordinator(client, topic)
        joined = join_with(client, topic, subscription(topic), session_timeout=6_000)
        client.request("sync_group", 5, sync_request(topic, joined, {joined["member_id"]: b""}))
        settings = {"auto_offset_reset": "earliest", "partition_assignment_strategy": "range"}
        with Consumer(broker.bootstrap, group_id=topic, heartbeat_interval_ms=100, **settings) as consumer:
            consumer.subscribe(topic)
            polled_for(consumer, 0.3)
            led = join_with(client, topic, subscription(topic), session_timeout=6_000, member_id=joined["member_id"])
            with contextlib.suppress(ConnectionClosedError):
                others = {one["member_id"]: RUBBISH[rubbish] for one in led["members"]}
                client.request("sync_group", 5, sync_request(topic, led, others))
            polled_for(consumer, 0.3)
            client.request("leave_group", 5, {"group_id": topic, "members": [{"member_id": joined["member_id"]}]})
            write(broker, topic, numbered(0, RECORDS))
            eventually(lambda: reads(consumer), "it reads, when the other one is gone")


def polled_for(consumer: Consumer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        reads(consumer)


def reads(consumer: Consumer) -> bool:
    """What is wrong with the group may be said; the end of the consumer may not."""
    try:
        return bool(consumer.poll(0.05))
    except ConsumerClosed:
        raise
    except OncelogError as error:
        print(repr(error))
        return False
