"""Group requests with bytes that are not what they were: an answer or a closed connection, never a failure inside."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest

from oncelog.log.storage import Storage
from oncelog.wire.codec import MalformedMessage
from tests.broker.support import NOW_MS, Desk
from tests.support.faulty_storage import FaultyStorage
from tests.support.groups import commit_request, heartbeat_request, join_request, subscription, sync_request
from tests.support.raw import Message, encode_request

MUTATIONS = 3_000
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def requests(member: Message) -> list[tuple[str, int, Message]]:
    """One good request of each API, to a group that has a member."""
    me = {"group_id": "g", "member_id": member["member_id"], "generation_id": member["generation_id"]}
    wanted = [{"name": "orders", "partition_indexes": [0, 1]}]
    return [
        ("join_group", 9, join_request("g", member["member_id"])),
        ("join_group", 3, join_request("new", protocols=[{"name": "range", "metadata": subscription("orders")}])),
        ("sync_group", 5, sync_request("g", member, {member["member_id"]: b"share"})),
        ("heartbeat", 4, me),
        ("leave_group", 5, {"group_id": "g", "members": [{"member_id": MEMBER, "group_instance_id": "i"}]}),
        ("offset_commit", 9, commit_request("g", ("orders", 0, 5), member=member)),
        ("offset_commit", 7, commit_request("g", ("orders", 0, 5), member=member)),
        ("offset_fetch", 9, {"groups": [{"group_id": "g", "member_epoch": -1, "topics": wanted}]}),
        ("offset_fetch", 5, {"group_id": "g", "topics": wanted}),
        ("offset_delete", 0, {"group_id": "g", "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}),
        ("describe_groups", 6, {"groups": ["g", "other"], "include_authorized_operations": True}),
        ("list_groups", 5, {"states_filter": ["Stable"], "types_filter": ["classic"]}),
        ("delete_groups", 2, {"groups_names": ["other"]}),
        ("find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["g"]}),
        ("consumer_group_heartbeat", 1, heartbeat_request("c", MEMBER, 0, subscribed_topic_names=["orders"])),
        ("consumer_group_heartbeat", 1, heartbeat_request("c", MEMBER, 0, subscribed_topic_regex="ord.*")),
        ("consumer_group_describe", 1, {"group_ids": ["c"], "include_authorized_operations": True}),
    ]


@pytest.fixture
def storage() -> Storage:
    return FaultyStorage()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_fails_inside(storage: Storage, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    caplog.set_level(logging.ERROR)
    desk = Desk(storage, "/data", offsets_topic_num_partitions="2", group_initial_rebalance_delay_ms="0")
    desk.create("orders", 2)
    desk.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    required = desk.ask("join_group", 9, join_request("g"))
    waiting = desk.ask_later("join_group", 9, join_request("g", required["member_id"]))
    desk.alarms.pass_time(1)
    assert waiting.message is not None
    good = requests(waiting.message)
    chance = random.Random(seed)
    for _ in range(MUTATIONS):
        api, version, body = chance.choice(good)
        send(desk, mangle(chance, bytearray(encode_request(api, version, body)[4:])))
        if chance.random() < 0.05:
            desk.alarms.pass_time(chance.choice([10, 1_000, 60_000]))
    bugs = [record for record in caplog.records if "bug" in record.getMessage()]
    assert not bugs, f"seed {seed}: {bugs[0].getMessage()} {bugs[0].exc_text}"


def mangle(chance: random.Random, frame: bytearray) -> bytearray:
    """Some bytes of the body are others, or missing, or too many."""
    ways: list[Callable[[], bytearray]] = [
        lambda: frame,
        lambda: frame[: chance.randrange(len(frame))],
        lambda: frame + frame[chance.randrange(len(frame)) :],
    ]
    for _ in range(chance.randint(0, 2)):
        frame[chance.randrange(8, len(frame))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return chance.choices(ways, [8, 1, 1])[0]()


def send(desk: Desk, frame: bytearray) -> None:
    try:
        header, answer = desk.dispatcher.dispatch(memoryview(frame), NOW_MS)
        if isinstance(answer, dict | list):
            desk.dispatcher.frame(header, answer)
        elif hasattr(answer, "on_complete"):
            answer.on_complete = lambda late: desk.dispatcher.frame(header, late) and None
    except MalformedMessage:
        pass
