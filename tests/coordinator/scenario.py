"""One long conversation about groups, for any coordinator: what it asks is fixed, the answers are compared.

`tests.golden.capture_groups` holds it with Apache Kafka and keeps the answers; a test holds it with ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from uuid import UUID

from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.support import protocols

TOPICS = ("orders", "bills")
PARTITIONS = 2
UNKNOWN_ID = UUID(int=7)

_RANDOM_PART = re.compile(r"-([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|id\d+)$")

_OF_THE_RUN = ("throttle_time_ms", "topic_id")


class Connection(Protocol):
    def send(self, api_key: ApiKey, version: int, body: Message) -> Callable[[], Message]:
        """The request is under way; the function waits for its answer."""
        ...


def hold(first: Connection, second: Connection) -> Iterator[tuple[str, Any]]:
    """What was asked, and the answer, comparable: without what differs from one run to another."""
    names: dict[str, str] = {}
    for title, answer in _conversation(first, second):
        yield title, _comparable(answer, names)


def _comparable(value: Any, names: dict[str, str]) -> Any:
    """Member ids by the order in which they appear, topic ids not at all, sets in order."""
    if isinstance(value, dict):
        return {
            key: _comparable(each, names) for key, each in value.items() if key not in ("throttle_time_ms", "topic_id")
        }
    if isinstance(value, list):
        return sorted((_comparable(each, names) for each in value), key=repr)
    if isinstance(value, memoryview | bytes):
        return bytes(value).hex()
    if isinstance(value, str) and _RANDOM_PART.search(value):
        return names.setdefault(value, _RANDOM_PART.sub(f"-{len(names) + 1}", value))
    return value


def _join(group_id: str = "g", member_id: str = "", **fields: Any) -> Message:
    body: Message = {"group_id": group_id, "member_id": member_id, "session_timeout_ms": 30_000}
    body |= {"rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "protocols": protocols("range")}
    return body | fields


def _sync(member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> Message:
    parts = [{"member_id": each, "assignment": data} for each, data in (assignments or {}).items()]
    body: Message = {"group_id": "g", "generation_id": generation, "member_id": member_id, "assignments": parts}
    return body | {"protocol_type": "consumer", "protocol_name": "range"} | fields


def _beat(member_id: str, generation: int, **fields: Any) -> Message:
    return {"group_id": "g", "generation_id": generation, "member_id": member_id} | fields


def _commit(group_id: str, generation: int = -1, member_id: str = "", topic: str = "orders", **fields: Any) -> Message:
    partition = {"partition_index": fields.pop("partition", 0), "committed_offset": 5}
    partition["committed_metadata"] = fields.pop("metadata", "m")
    topics = [{"name": topic, "topic_id": UNKNOWN_ID, "partitions": [partition]}]
    body = {"group_id": group_id, "generation_id_or_member_epoch": generation, "member_id": member_id}
    return body | {"topics": topics} | fields


def _delete_offsets(group_id: str, *topics: str) -> Message:
    parts = [{"partition_index": index} for index in range(PARTITIONS)]
    return {"group_id": group_id, "topics": [{"name": topic, "partitions": parts} for topic in topics]}


def _conversation(first: Connection, second: Connection) -> Iterator[tuple[str, Message]]:
    def ask(title: str, api_key: ApiKey, version: int, body: Message) -> tuple[str, Message]:
        return title, first.send(api_key, version, body)()

    yield from _without_a_group(ask)
    yield from _without_members(ask)
    yield from _one_member(ask)
    yield from _static_members(ask, second)


_Ask = Callable[[str, ApiKey, int, Message], tuple[str, Message]]
_Steps = Iterator[tuple[str, Message]]


def _without_a_group(ask: _Ask) -> _Steps:
    yield ask("heartbeat", ApiKey.HEARTBEAT, 4, _beat("x", 1, group_id="none"))
    yield ask("heartbeat without group id", ApiKey.HEARTBEAT, 4, _beat("x", 1, group_id=""))
    yield ask("join with an id", ApiKey.JOIN_GROUP, 9, _join("none", "x"))
    yield ask("join without group id", ApiKey.JOIN_GROUP, 9, _join(""))
    yield ask("join without group id v4", ApiKey.JOIN_GROUP, 4, _join(""))
    yield ask("join with a short session", ApiKey.JOIN_GROUP, 9, _join(session_timeout_ms=1))
    yield ask("join without protocols", ApiKey.JOIN_GROUP, 9, _join("odd", protocols=[]))
    yield ask("sync", ApiKey.SYNC_GROUP, 5, _sync("x", 1, group_id="none"))
    yield ask("sync without protocol", ApiKey.SYNC_GROUP, 5, _sync("x", 1, group_id="none", protocol_name=None))
    yield ask("sync without group id", ApiKey.SYNC_GROUP, 5, _sync("x", 1, group_id=""))
    yield ask("leave", ApiKey.LEAVE_GROUP, 5, {"group_id": "none", "members": [{"member_id": "x"}]})
    yield ask("leave v1", ApiKey.LEAVE_GROUP, 1, {"group_id": "none", "member_id": "x"})
    yield ask("leave without group id", ApiKey.LEAVE_GROUP, 5, {"group_id": "", "members": [{"member_id": "x"}]})
    yield ask("leave without members", ApiKey.LEAVE_GROUP, 5, {"group_id": "none", "members": []})
    for version in (5, 6):
        yield ask(f"describe v{version}", ApiKey.DESCRIBE_GROUPS, version, {"groups": ["none"]})
    yield ask("delete", ApiKey.DELETE_GROUPS, 2, {"groups_names": ["none", "", "none"]})
    for version in (8, 9):
        yield ask(f"commit v{version}", ApiKey.OFFSET_COMMIT, version, _commit("none", 3, "x"))
    yield ask("delete offsets", ApiKey.OFFSET_DELETE, 0, _delete_offsets("none", "orders"))


def _without_members(ask: _Ask) -> _Steps:
    yield ask("commit to an unknown topic", ApiKey.OFFSET_COMMIT, 9, _commit("simple", topic="none"))
    yield ask("commit to an unknown partition", ApiKey.OFFSET_COMMIT, 9, _commit("simple", partition=77))
    yield ask("commit to an unknown id", ApiKey.OFFSET_COMMIT, 10, _commit("simple"))
    yield ask("commit long metadata", ApiKey.OFFSET_COMMIT, 9, _commit("simple", metadata="x" * 5_000))
    yield ask("commit", ApiKey.OFFSET_COMMIT, 9, _commit("simple"))
    yield ask("commit without metadata", ApiKey.OFFSET_COMMIT, 9, _commit("simple", metadata=None, partition=1))
    yield ask("commit without group id", ApiKey.OFFSET_COMMIT, 9, _commit(""))
    yield ask("commit with retention", ApiKey.OFFSET_COMMIT, 2, _commit("simple2", retention_time_ms=5_000))
    for group_type in (["Classic", "bogus"], ["bogus"]):
        yield ask(
            f"list {group_type}", ApiKey.LIST_GROUPS, 5, {"types_filter": group_type, "states_filter": ["Stable"]}
        )
    yield ask("list states", ApiKey.LIST_GROUPS, 5, {"states_filter": ["STABLE", "bogus"]})
    yield ask("describe", ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["simple"]})
    some = [{"name": "orders", "partition_indexes": [0, 1]}, {"name": "none", "partition_indexes": [0]}]
    for version in (1, 5, 7):
        yield ask(f"fetch v{version}", ApiKey.OFFSET_FETCH, version, {"group_id": "simple", "topics": some})
    groups = [{"group_id": each, "topics": None} for each in ("simple", "none", "")]
    groups += [{"group_id": "none", "topics": some}]
    groups += [{"group_id": "simple", "member_id": "x", "member_epoch": 3, "topics": None}]
    yield ask("fetch all", ApiKey.OFFSET_FETCH, 9, {"groups": groups})
    unknown = [{"topic_id": UNKNOWN_ID, "partition_indexes": [0]}]
    groups = [{"group_id": "simple", "topics": None}, {"group_id": "simple", "topics": unknown}]
    yield ask("fetch by id", ApiKey.OFFSET_FETCH, 10, {"groups": groups})
    yield ask("delete offsets of a simple group", ApiKey.OFFSET_DELETE, 0, _delete_offsets("simple", "orders", "none"))
    yield ask("delete a simple group", ApiKey.DELETE_GROUPS, 2, {"groups_names": ["simple2"]})


def _one_member(ask: _Ask) -> _Steps:
    title, answer = ask("first join", ApiKey.JOIN_GROUP, 9, _join())
    yield title, answer
    member = answer["member_id"]
    yield ask("heartbeat of a pending member", ApiKey.HEARTBEAT, 4, _beat(member, 0))
    yield ask("join with the id", ApiKey.JOIN_GROUP, 9, _join("g", member))
    yield ask("commit while completing", ApiKey.OFFSET_COMMIT, 9, _commit("g", 1, member))
    yield ask("describe while completing", ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g"]})
    yield ask("heartbeat while completing", ApiKey.HEARTBEAT, 4, _beat(member, 1))
    yield ask("sync of another generation", ApiKey.SYNC_GROUP, 5, _sync(member, 3))
    yield ask("sync of another protocol", ApiKey.SYNC_GROUP, 5, _sync(member, 1, protocol_name="x"))
    yield ask("join again", ApiKey.JOIN_GROUP, 9, _join("g", member))
    yield ask("sync", ApiKey.SYNC_GROUP, 5, _sync(member, 1, {member: b"mine"}))
    yield ask("sync again", ApiKey.SYNC_GROUP, 5, _sync(member, 1))
    yield ask("list a stable group", ApiKey.LIST_GROUPS, 5, {"states_filter": ["STABLE", "bogus"]})
    yield ask("describe a stable group", ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g"]})
    for version in (2, 9):
        yield ask(f"commit of a member v{version}", ApiKey.OFFSET_COMMIT, version, _commit("g", 1, member))
    yield ask("commit of another generation", ApiKey.OFFSET_COMMIT, 9, _commit("g", 2, member))
    yield ask("commit without generation", ApiKey.OFFSET_COMMIT, 9, _commit("g", -1, member))
    yield ask("commit of nobody", ApiKey.OFFSET_COMMIT, 9, _commit("g"))
    yield ask("commit of a stranger", ApiKey.OFFSET_COMMIT, 9, _commit("g", 1, "x"))
    yield ask("commit of an instance", ApiKey.OFFSET_COMMIT, 9, _commit("g", 1, member, group_instance_id="i"))
    yield ask("delete offsets that are read", ApiKey.OFFSET_DELETE, 0, _delete_offsets("g", "orders", "bills"))
    yield ask("delete a stable group", ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    yield ask("join by another protocol", ApiKey.JOIN_GROUP, 9, _join(protocols=protocols("sticky")))
    yield ask("join as another type", ApiKey.JOIN_GROUP, 9, _join(protocol_type="connect"))
    yield ask("join as a stranger", ApiKey.JOIN_GROUP, 9, _join("g", "x"))
    yield ask("leave and come back", ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": [{"member_id": member}]})


def _static_members(ask: _Ask, second: Connection) -> _Steps:
    title, answer = ask("id of a leader", ApiKey.JOIN_GROUP, 9, _join())
    yield title, answer
    leader = answer["member_id"]
    yield ask("leader", ApiKey.JOIN_GROUP, 9, _join("g", leader))
    yield ask("sync of the leader", ApiKey.SYNC_GROUP, 5, _sync(leader, 3, {leader: b"all"}))
    waiting = second.send(ApiKey.JOIN_GROUP, 9, _join(group_instance_id="i"))
    while (beat := ask("heartbeat in a round", ApiKey.HEARTBEAT, 4, _beat(leader, 3)))[1]["error_code"] == 0:
        pass
    yield beat
    yield ask("describe in a round", ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g"]})
    yield ask("sync in a round", ApiKey.SYNC_GROUP, 5, _sync(leader, 3))
    yield ask("commit in a round", ApiKey.OFFSET_COMMIT, 9, _commit("g", 3, leader))
    yield ask("join the round", ApiKey.JOIN_GROUP, 9, _join("g", leader))
    answer = waiting()
    yield "static join", answer
    static = answer["member_id"]
    waiting = second.send(ApiKey.SYNC_GROUP, 5, _sync(static, 4, group_instance_id="i"))
    yield ask("assign", ApiKey.SYNC_GROUP, 5, _sync(leader, 4, {leader: b"A", static: b"B"}))
    yield "static sync", waiting()
    yield ask("follower again", ApiKey.JOIN_GROUP, 9, _join("g", static, group_instance_id="i"))
    title, answer = ask("follower anew", ApiKey.JOIN_GROUP, 9, _join(group_instance_id="i"))
    yield title, answer
    yield ask("fenced heartbeat", ApiKey.HEARTBEAT, 4, _beat(static, 4, group_instance_id="i"))
    yield ask("fenced commit", ApiKey.OFFSET_COMMIT, 9, _commit("g", 4, static, group_instance_id="i"))
    yield ask("fenced join", ApiKey.JOIN_GROUP, 9, _join("g", static, group_instance_id="i"))
    yield ask("sync anew", ApiKey.SYNC_GROUP, 5, _sync(answer["member_id"], 4, group_instance_id="i"))
    leavers = [{"member_id": "", "group_instance_id": each} for each in ("i", "none")]
    leavers += [{"member_id": "x"}, {"member_id": leader, "group_instance_id": "none"}, {"member_id": leader}]
    yield ask("all leave", ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": leavers})
    yield ask("describe an empty group", ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g"]})
    yield ask("commit to an empty group", ApiKey.OFFSET_COMMIT, 9, _commit("g"))
    yield ask("commit of one who left", ApiKey.OFFSET_COMMIT, 9, _commit("g", 4, leader))
    title, answer = ask("static leader", ApiKey.JOIN_GROUP, 9, _join(group_instance_id="L"))
    yield title, answer
    generation, leader = answer["generation_id"], answer["member_id"]
    yield ask("its sync", ApiKey.SYNC_GROUP, 5, _sync(leader, generation, {leader: b"Z"}, group_instance_id="L"))
    for version in (9, 8, 5):
        yield ask(f"static leader anew v{version}", ApiKey.JOIN_GROUP, version, _join(group_instance_id="L"))
    for version in (0, 3):
        yield ask(f"first join v{version}", ApiKey.JOIN_GROUP, version, _join(f"old{version}"))
