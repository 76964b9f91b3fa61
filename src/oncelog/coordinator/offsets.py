"""The committed offsets of all groups of a partition.

OffsetCommit v2-10 (v2-4 may bring a retention of their own, v9 serves member epochs as well, v10 names topics by id),
OffsetFetch v1-10 (v2 all topics at once, v8 several groups, v10 topic ids), OffsetDelete v0. Owns the offsets and
when they expire; a group itself says who may commit, and what its members read. Offsets of open transactions are not
served yet: nothing is ever unstable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply, TopicsView
from oncelog.coordinator.groups import Group, GroupMap
from oncelog.coordinator.records import CoordinatorRecord, offset_commit, offset_tombstone
from oncelog.errors import (
    NONE,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    KafkaError,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET
from oncelog.wire.codec import Message
from oncelog.wire.primitives import MAX_STRING_BYTES
from oncelog.wire.schema import ZERO_UUID

FIRST_COMMIT_WITH_MEMBER_EPOCH = 9
FIRST_WITH_TOPIC_IDS = 10
FIRST_FETCH_WITH_GROUP_ERROR = 2
FIRST_FETCH_WITH_GROUPS = 8

NO_EXPIRY = -1
NO_RETENTION = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """NO_EXPIRY unless the client that committed it had its own idea."""
    topic_id: UUID = ZERO_UUID
    """Tells offsets of a topic from those of an earlier one of the same name."""


_Topics = dict[str, dict[int, CommittedOffset]]

NOTHING_COMMITTED = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", -1, NO_EXPIRY)


class Offsets:
    def __init__(self, settings: GroupSettings, topics: TopicsView, groups: GroupMap) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets: dict[str, _Topics] = {}
        self._groups_of_topic: dict[str, set[str]] = {}

    # OffsetCommit

    def commit(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            self._check_commit(request, caller.version, now_ms)
        except KafkaError as error:
            return Effects([], [Reply(caller.ticket, _commit_refused(request, error.code))])
        retention_ms = request["retention_time_ms"]
        expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else now_ms + retention_ms
        group_id = request["group_id"]
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request["topics"]:
            name = self._name_of(topic, caller.version)
            partition_count = self._topics.partition_count(name) or 0
            topic_id = self._topics.topic_id(name) or ZERO_UUID
            partitions = []
            for partition in topic["partitions"]:
                metadata = partition["committed_metadata"] or ""
                index = partition["partition_index"]
                if not 0 <= index < partition_count:
                    code = UnknownTopicOrPartition.code if name else UnknownTopicId.code
                else:
                    code = self._metadata_error(metadata) if metadata else NONE
                partitions.append({"partition_index": index, "error_code": code})
                if code == NONE:
                    offset, epoch = partition["committed_offset"], partition["committed_leader_epoch"]
                    records.append(
                        offset_commit(group_id, name, index, offset, epoch, metadata, now_ms, expire_ms, topic_id)
                    )
            topics.append({"name": name, "topic_id": topic["topic_id"], "partitions": partitions})
        return Effects(records, [Reply(caller.ticket, {"topics": topics})])

    def _check_commit(self, request: Message, version: int, now_ms: int) -> None:
        group_id, generation = request["group_id"], request["generation_id_or_member_epoch"]
        group = self._groups.get(group_id)
        if group is None:
            if len(group_id.encode()) > MAX_STRING_BYTES:
                raise InvalidGroupId(f"a group id of more than {MAX_STRING_BYTES} bytes")
            if generation < 0:
                return
            known = GroupIdNotFound if version >= FIRST_COMMIT_WITH_MEMBER_EPOCH else IllegalGeneration
            raise known(f"there is no group {group_id!r}; join it, or commit without a generation")
        try:
            group.check_offset_commit(request["member_id"], request["group_instance_id"], generation, version, now_ms)
        except StaleMemberEpoch as error:
            if version >= FIRST_COMMIT_WITH_MEMBER_EPOCH:
                raise
            raise UnsupportedVersion("members of a consumer group commit with version 9 or later") from error

    def _metadata_error(self, metadata: str) -> int:
        limit = min(self._settings.offset_metadata_max_bytes, MAX_STRING_BYTES)
        return OffsetMetadataTooLarge.code if len(metadata.encode()) > limit else NONE

    def _name_of(self, topic: Message, version: int) -> str:
        """Empty for an id that nobody has."""
        name: str = topic["name"]
        return name if version < FIRST_WITH_TOPIC_IDS else self._topics.topic_name(topic["topic_id"]) or ""

    # OffsetFetch

    def fetch(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        version = caller.version
        if version >= FIRST_FETCH_WITH_GROUPS:
            parts = [self._fetch_group(group, version) for group in request["groups"]]
            return Effects([], [Reply(caller.ticket, {"groups": parts})])
        asked = {"group_id": request["group_id"], "member_id": None, "member_epoch": -1, "topics": request["topics"]}
        part = self._fetch_group(asked, version)
        del part["group_id"]
        if part["error_code"] != NONE and version < FIRST_FETCH_WITH_GROUP_ERROR:
            # There is no other place for it.
            part["topics"] = _not_fetched(request["topics"], part["error_code"])
        return Effects([], [Reply(caller.ticket, part)])

    def _fetch_group(self, asked: Message, version: int) -> Message:
        group_id = asked["group_id"]
        offsets: _Topics = {}
        group = self._groups.get(group_id)
        if group is not None:
            try:
                group.check_offset_fetch(asked["member_id"], asked["member_epoch"])
                offsets = self._offsets.get(group_id, {})
            except GroupIdNotFound:
                pass
            except KafkaError as error:
                return {"group_id": group_id, "topics": [], "error_code": error.code}
        if asked["topics"] is None:
            topics = self._all_topics(offsets, version)
        else:
            topics = [self._fetch_topic(topic, offsets, version) for topic in asked["topics"]]
        return {"group_id": group_id, "topics": topics, "error_code": NONE}

    def _fetch_topic(self, asked: Message, offsets: _Topics, version: int) -> Message:
        name = self._name_of(asked, version)
        committed = self._current(name, offsets.get(name, {}))
        code = NONE if name else UnknownTopicId.code
        partitions = [_fetched(index, committed.get(index), code) for index in asked["partition_indexes"]]
        return {**_topic_key(asked, version), "partitions": partitions}

    def _current(self, name: str, committed: dict[int, CommittedOffset]) -> dict[int, CommittedOffset]:
        """Without offsets of an earlier topic of this name."""
        topic_id = self._topics.topic_id(name)
        if topic_id is None:
            return committed
        return {index: offset for index, offset in committed.items() if offset.topic_id in (topic_id, ZERO_UUID)}

    def _all_topics(self, offsets: _Topics, version: int) -> list[Message]:
        topics: list[Message] = []
        for name, committed in offsets.items():
            topic_id = self._topics.topic_id(name)
            if topic_id is None and version >= FIRST_WITH_TOPIC_IDS:
                continue
            current = self._current(name, committed)
            partitions = [_fetched(index, offset) for index, offset in current.items()]
            topics.append({**_topic_key({"name": name, "topic_id": topic_id}, version), "partitions": partitions})
        return topics

    # OffsetDelete

    def delete(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        group_id = request["group_id"]
        try:
            group = self._groups.existing(group_id)
            group.check_offset_delete()
        except KafkaError as error:
            return Effects([], [Reply(caller.ticket, {"error_code": error.code, "topics": []})])
        records = []
        topics = []
        for topic in request["topics"]:
            name = topic["name"]
            code = self._delete_error(group, name)
            committed = self._offsets.get(group_id, {}).get(name, {})
            indexes = [partition["partition_index"] for partition in topic["partitions"]]
            if code == NONE:
                records += [offset_tombstone(group_id, name, index) for index in indexes if index in committed]
            partitions = [{"partition_index": index, "error_code": code} for index in indexes]
            topics.append({"name": name, "partitions": partitions})
        return Effects(records, [Reply(caller.ticket, {"error_code": NONE, "topics": topics})])

    def _delete_error(self, group: Group, topic: str) -> int:
        if self._topics.partition_count(topic) is None:
            return UnknownTopicOrPartition.code
        return GroupSubscribedToTopic.code if group.is_subscribed(topic) else NONE

    # The log

    def replay(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        group_id, topic, partition = key["group"], key["topic"], key["partition"]
        if value is None:
            self._forget(group_id, topic, partition)
            return
        topics = self._offsets.get(group_id)
        if topics is None:
            topics = self._offsets[group_id] = {}
        committed = topics.get(topic)
        if committed is None:
            committed = topics[topic] = {}
            self._groups_of_topic.setdefault(topic, set()).add(group_id)
        # Records of the legacy type have three of these.
        committed[partition] = CommittedOffset(
            value["offset"],
            value.get("leader_epoch", NO_LEADER_EPOCH),
            value["metadata"],
            value["commit_timestamp"],
            value.get("expire_timestamp", NO_EXPIRY),
            value.get("topic_id", ZERO_UUID),
        )

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._offsets.get(group_id, {})
        committed = topics.get(topic)
        if committed is None:
            return
        committed.pop(partition, None)
        if not committed:
            del topics[topic]
            groups = self._groups_of_topic[topic]
            groups.discard(group_id)
            if not groups:
                del self._groups_of_topic[topic]
        if not topics:
            del self._offsets[group_id]

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._offsets

    def hard_state(self) -> dict[str, _Topics]:
        return {
            group_id: {topic: dict(committed) for topic, committed in topics.items()}
            for group_id, topics in self._offsets.items()
        }

    # What takes offsets away

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """All offsets of a group."""
        return [offset_tombstone(group_id, topic, index) for topic, index, _ in self._of_group(group_id)]

    def of_deleted_topics(self, limit: int) -> list[CoordinatorRecord]:
        """Tombstones, at most so many, for the offsets in topics that are no more."""
        tombstones = (
            offset_tombstone(group_id, topic, index)
            for topic, group_ids in self._groups_of_topic.items()
            for group_id in group_ids
            for index in self._gone(topic, self._offsets[group_id][topic])
        )
        return list(islice(tombstones, limit))

    def _gone(self, topic: str, committed: dict[int, CommittedOffset]) -> Iterable[int]:
        if self._topics.partition_count(topic) is None:
            return committed
        return committed.keys() - self._current(topic, committed).keys()

    def expired(self, group: Group, now_ms: int) -> list[CoordinatorRecord]:
        """Tombstones for the offsets of a group whose time is over (KIP-211). Offsets in topics that a member reads
        never expire, nor do any while the group does not know what its members read."""
        is_expired = self._expiry_of(group, now_ms)
        read = {topic for topic in self._offsets.get(group.group_id, {}) if group.is_subscribed(topic)}
        return [
            offset_tombstone(group.group_id, topic, index)
            for topic, index, offset in self._of_group(group.group_id)
            if topic not in read and is_expired(offset)
        ]

    def _expiry_of(self, group: Group, now_ms: int) -> Callable[[CommittedOffset], bool]:
        retention_ms = self._settings.offsets_retention_ms

        def is_expired(offset: CommittedOffset) -> bool:
            start_ms = group.retention_start_ms(offset.commit_timestamp_ms)
            if start_ms is None:
                return False
            if offset.expire_timestamp_ms != NO_EXPIRY:
                return now_ms >= offset.expire_timestamp_ms
            return now_ms - start_ms >= retention_ms

        return is_expired

    def count(self, group_id: str) -> int:
        return sum(map(len, self._offsets.get(group_id, {}).values()))

    def _of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, committed in self._offsets.get(group_id, {}).items():
            for index, offset in committed.items():
                yield topic, index, offset


def _commit_refused(request: Message, error_code: int) -> Message:
    return {
        "topics": [
            {
                "name": topic["name"],
                "topic_id": topic["topic_id"],
                "partitions": [
                    {"partition_index": partition["partition_index"], "error_code": error_code}
                    for partition in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


def _topic_key(topic: Message, version: int) -> Message:
    return {"topic_id": topic["topic_id"]} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic["name"]}


def _not_fetched(asked: list[Message], error_code: int) -> list[Message]:
    return [
        {
            "name": topic["name"],
            "partitions": [_fetched(index, None, error_code) for index in topic["partition_indexes"]],
        }
        for topic in asked
    ]


def _fetched(index: int, committed: CommittedOffset | None, error_code: int = NONE) -> Message:
    committed = committed or NOTHING_COMMITTED
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error_code,
    }
