"""The committed offsets of all groups of a partition.

OffsetCommit v2-10 (v2-4 may bring a retention of their own, v9 serves member epochs as well, v10 names topics by id),
TxnOffsetCommit v0-5 (v3 says which member asks), OffsetFetch v1-10 (v2 all topics at once, v7 stable ones only, v8
several groups, v10 topic ids), OffsetDelete v0. Owns the offsets and when they expire; a group itself says who may
commit, and what its members read.

What a transaction commits is pending until its marker comes. It is true then, unless a later record of the log has said
something else meanwhile: a commit keeps its own word, and a tombstone voids what is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from uuid import UUID

from oncelog.coordinator.absence import Absence
from oncelog.coordinator.committed_offset import NO_EXPIRY, NOTHING_COMMITTED, CommittedOffset, of_record
from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply, TopicsView
from oncelog.coordinator.groups import Group, GroupMap
from oncelog.coordinator.pending_offsets import OffsetKey, PendingOffsets
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
    UnstableOffsetCommit,
    UnsupportedVersion,
)
from oncelog.types import NO_PRODUCER_ID
from oncelog.wire.codec import Message
from oncelog.wire.primitives import MAX_STRING_BYTES
from oncelog.wire.schema import ZERO_UUID

FIRST_COMMIT_WITH_MEMBER_EPOCH = 9
FIRST_WITH_TOPIC_IDS = 10
FIRST_FETCH_WITH_GROUP_ERROR = 2
FIRST_FETCH_WITH_GROUPS = 8

NO_RETENTION = -1
LAST_EXPIRY_MS = 2**63 - 1
"""The latest time that a record can say."""

_Topics = dict[str, dict[int, CommittedOffset]]
_Unstable = Collection[tuple[str, int]]


class Offsets:
    def __init__(self, settings: GroupSettings, topics: TopicsView, groups: GroupMap) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets: dict[str, _Topics] = {}
        self._groups_of_topic: dict[str, set[str]] = {}
        self._followed: dict[str, UUID] = {}
        """Topics, and their ids, all of whose offsets are known to be of the topic as it is: nobody looks at them when
        some other topic comes or goes."""
        self._pending = PendingOffsets()

    # OffsetCommit and TxnOffsetCommit

    def commit(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            self._check_commit(request, caller.version, now_ms)
        except KafkaError as error:
            return Effects([], [Reply(caller.ticket, _commit_refused(request, error.code))])
        retention_ms = request["retention_time_ms"]
        expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, LAST_EXPIRY_MS)
        return self._committed(request, caller, expire_ms, now_ms)

    def commit_in_transaction(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        """The records are pending: they belong into one transactional batch of the producer that the request names."""
        try:
            self._check_transactional_commit(request, caller.version)
        except KafkaError as error:
            return Effects([], [Reply(caller.ticket, _commit_refused(request, error.code))])
        return self._committed(request, caller, NO_EXPIRY, now_ms)

    def _committed(self, request: Message, caller: Caller, expire_ms: int, now_ms: int) -> Effects:
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
            topics.append(_answered(topic, name, partitions))
        return Effects(records, [Reply(caller.ticket, {"topics": topics})])

    def _check_commit(self, request: Message, version: int, now_ms: int) -> None:
        group_id, generation = request["group_id"], request["generation_id_or_member_epoch"]
        group = self._groups.get(group_id)
        if group is None:
            _check_new_group(group_id)
            if generation < 0:
                return
            known = GroupIdNotFound if version >= FIRST_COMMIT_WITH_MEMBER_EPOCH else IllegalGeneration
            raise known(f"there is no group {group_id!r}; join it, or commit without a generation")
        try:
            group.check_offset_commit(request["member_id"], request["group_instance_id"], generation, version, now_ms)
        except StaleMemberEpoch as error:
            if group.has_kept(request["member_id"], generation, self._existing(request, version)):
                return
            if version >= FIRST_COMMIT_WITH_MEMBER_EPOCH:
                raise
            raise UnsupportedVersion("members of a consumer group commit with version 9 or later") from error

    def _existing(self, request: Message, version: int) -> Iterator[tuple[UUID, int]]:
        """The partitions that it names and that there are."""
        for topic in request["topics"]:
            name = self._name_of(topic, version)
            topic_id, count = self._topics.topic_id(name) or ZERO_UUID, self._topics.partition_count(name) or 0
            indexes = (partition["partition_index"] for partition in topic["partitions"])
            yield from ((topic_id, index) for index in indexes if 0 <= index < count)

    def _check_transactional_commit(self, request: Message, version: int) -> None:
        group_id, generation = request["group_id"], request["generation_id"]
        group = self._groups.get(group_id)
        if group is None:
            _check_new_group(group_id)
            if generation >= 0:
                raise IllegalGeneration(f"there is no group {group_id!r}; join it, or commit without a generation")
            return
        try:
            group.check_transactional_commit(request["member_id"], request["group_instance_id"], generation)
        except StaleMemberEpoch as error:
            if group.has_kept(request["member_id"], generation, self._existing(request, version)):
                return
            # No version of TxnOffsetCommit knows the other one.
            raise IllegalGeneration(error.message) from error

    def _metadata_error(self, metadata: str) -> int:
        limit = min(self._settings.offset_metadata_max_bytes, MAX_STRING_BYTES)
        return OffsetMetadataTooLarge.code if len(metadata.encode()) > limit else NONE

    def _name_of(self, topic: Message, version: int) -> str:
        """Empty for an id that nobody has."""
        name: str = topic["name"]
        return name if version < FIRST_WITH_TOPIC_IDS else self._topics.topic_name(topic["topic_id"]) or ""

    # OffsetFetch

    def fetch(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        version, is_stable = caller.version, request["require_stable"]
        if version >= FIRST_FETCH_WITH_GROUPS:
            parts = [self._fetch_group(group, version, is_stable) for group in request["groups"]]
            return Effects([], [Reply(caller.ticket, {"groups": parts})])
        asked = {"group_id": request["group_id"], "member_id": None, "member_epoch": -1, "topics": request["topics"]}
        part = self._fetch_group(asked, version, is_stable)
        del part["group_id"]
        if part["error_code"] != NONE and version < FIRST_FETCH_WITH_GROUP_ERROR:
            # There is no other place for it.
            part["topics"] = _not_fetched(request["topics"], part["error_code"])
        return Effects([], [Reply(caller.ticket, part)])

    def _fetch_group(self, asked: Message, version: int, is_stable: bool) -> Message:
        """Who wants stable offsets only hears of no offset that an open transaction may change."""
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
        unstable = self._pending.of_group(group_id) if is_stable else ()
        if asked["topics"] is None:
            topics = self._all_topics(offsets, unstable, version)
        else:
            topics = [self._fetch_topic(topic, offsets, unstable, version) for topic in asked["topics"]]
        return {"group_id": group_id, "topics": topics, "error_code": NONE}

    def _fetch_topic(self, asked: Message, offsets: _Topics, unstable: _Unstable, version: int) -> Message:
        name = self._name_of(asked, version)
        indexes = asked["partition_indexes"]
        if not name:
            partitions = [_fetched(index, None, UnknownTopicId.code) for index in indexes]
        else:
            committed = self._current(name, offsets.get(name, {}))
            partitions = [_fetched_stable(name, index, committed.get(index), unstable) for index in indexes]
        return {**_topic_key(asked, version), "partitions": partitions}

    def _current(self, name: str, committed: dict[int, CommittedOffset]) -> dict[int, CommittedOffset]:
        """Without offsets of an earlier topic of this name."""
        topic_id = self._topics.topic_id(name)
        if topic_id is None:
            return committed
        return {index: offset for index, offset in committed.items() if offset.topic_id in (topic_id, ZERO_UUID)}

    def _all_topics(self, offsets: _Topics, unstable: _Unstable, version: int) -> list[Message]:
        topics: list[Message] = []
        for name, committed in offsets.items():
            topic_id = self._topics.topic_id(name)
            if topic_id is None and version >= FIRST_WITH_TOPIC_IDS:
                continue
            current = self._current(name, committed)
            partitions = [_fetched_stable(name, index, offset, unstable) for index, offset in current.items()]
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
        known = self._keys_of(group_id)
        for topic in request["topics"]:
            name = topic["name"]
            code = self._delete_error(group, name)
            indexes = [partition["partition_index"] for partition in topic["partitions"]]
            if code == NONE:
                records += [offset_tombstone(group_id, name, index) for index in indexes if (name, index) in known]
            partitions = [{"partition_index": index, "error_code": code} for index in indexes]
            topics.append({"name": name, "partitions": partitions})
        return Effects(records, [Reply(caller.ticket, {"error_code": NONE, "topics": topics})])

    def _delete_error(self, group: Group, topic: str) -> int:
        if self._topics.partition_count(topic) is None:
            return UnknownTopicOrPartition.code
        return GroupSubscribedToTopic.code if group.is_subscribed(topic) else NONE

    # The log

    def replay(self, record: CoordinatorRecord, log_offset: int, producer_id: int) -> None:
        """Of a producer's transaction, if it has an id."""
        key, value = record.key, record.value
        group_id, topic, partition = key["group"], key["topic"], key["partition"]
        if value is None:
            self._forget(group_id, topic, partition)
            self._pending.forget(OffsetKey(group_id, topic, partition))
        elif producer_id == NO_PRODUCER_ID:
            self._become_true(group_id, topic, partition, of_record(value, log_offset))
        else:
            self._pending.add(producer_id, OffsetKey(group_id, topic, partition), of_record(value, log_offset))

    def transaction_ended(self, producer_id: int, is_commit: bool) -> set[str]:
        """A marker of the log says so. The groups that had offsets in it."""
        ended = self._pending.take(producer_id)
        if is_commit:
            for key, offset in ended.items():
                self._become_true(*key, offset)
        return {key.group_id for key in ended}

    def _become_true(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        topics = self._offsets.get(group_id)
        if topics is None:
            topics = self._offsets[group_id] = {}
        committed = topics.get(topic)
        if committed is None:
            committed = topics[topic] = {}
            self._groups_of_topic.setdefault(topic, set()).add(group_id)
        present = committed.get(partition)
        if present is None or present.log_offset <= offset.log_offset:
            committed[partition] = offset
            followed = self._followed.get(topic, offset.topic_id)
            if followed is not offset.topic_id and offset.topic_id not in (followed, ZERO_UUID):
                del self._followed[topic]

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
                self._followed.pop(topic, None)
        if not topics:
            del self._offsets[group_id]

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._offsets or self.has_pending(group_id)

    def has_pending(self, group_id: str) -> bool:
        return bool(self._pending.of_group(group_id))

    def hard_state(self) -> object:
        committed = {
            group_id: {topic: dict(committed) for topic, committed in topics.items()}
            for group_id, topics in self._offsets.items()
        }
        return committed, self._pending.hard_state()

    # What takes offsets away

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """All offsets of a group, and those that are about to be."""
        return [offset_tombstone(group_id, topic, index) for topic, index in self._keys_of(group_id)]

    def of_deleted_topics(self, limit: int) -> list[CoordinatorRecord]:
        """Tombstones, at most so many, for the offsets in topics that are no more."""
        committed = (
            offset_tombstone(group_id, topic, index)
            for topic in self._groups_of_topic
            for group_id, index in self._gone_of_topic(topic)
        )
        pending = (offset_tombstone(*key) for key in self._pending if self._is_only_pending_and_gone(key))
        return list(islice(chain(committed, pending), limit))

    def _gone_of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        topic_id = self._topics.topic_id(topic)
        if topic_id is not None and self._followed.get(topic) == topic_id:
            return
        is_whole = topic_id is not None
        for group_id in self._groups_of_topic[topic]:
            for index in self._gone(topic, self._offsets[group_id][topic]):
                is_whole = False
                yield group_id, index
        if is_whole and topic_id is not None:
            self._followed[topic] = topic_id

    def _is_only_pending_and_gone(self, key: OffsetKey) -> bool:
        """The topic is no more. Of one that was made anew nothing is known yet: what is pending then goes when it is
        committed."""
        if self._topics.partition_count(key.topic) is not None:
            return False
        return key.partition not in self._offsets.get(key.group_id, {}).get(key.topic, {})

    def _gone(self, topic: str, committed: dict[int, CommittedOffset]) -> Iterable[int]:
        if self._topics.partition_count(topic) is None:
            return committed
        return committed.keys() - self._current(topic, committed).keys()

    def expired(self, group: Group, absence: Absence, limit: int, now_ms: int) -> list[CoordinatorRecord]:
        """Tombstones, at most so many, for the offsets of a group whose time is over (KIP-211). Offsets in topics that
        a member reads never expire, nor do any while the group does not know what its members read, nor what is about
        to change."""
        is_expired = self._expiry_of(group, absence, now_ms)
        unstable = self._pending.of_group(group.group_id)
        read = {topic for topic in self._offsets.get(group.group_id, {}) if group.is_subscribed(topic)}
        found = (
            offset_tombstone(group.group_id, topic, index)
            for topic, index, offset in self._of_group(group.group_id)
            if topic not in read and is_expired(offset) and (topic, index) not in unstable
        )
        return list(islice(found, limit))

    def _expiry_of(self, group: Group, absence: Absence, now_ms: int) -> Callable[[CommittedOffset], bool]:
        retention_ms = self._settings.offsets_retention_ms

        def is_expired(offset: CommittedOffset) -> bool:
            start_ms = group.retention_start_ms(offset.commit_timestamp_ms)
            if start_ms is None:
                return False
            if offset.expire_timestamp_ms != NO_EXPIRY:
                wanted_ms = offset.expire_timestamp_ms - offset.commit_timestamp_ms
                return absence.age_ms(offset.commit_timestamp_ms, now_ms) >= wanted_ms
            return absence.age_ms(start_ms, now_ms) >= retention_ms

        return is_expired

    def count(self, group_id: str) -> int:
        return sum(map(len, self._offsets.get(group_id, {}).values()))

    def _keys_of(self, group_id: str) -> Collection[tuple[str, int]]:
        """Committed or pending; each once."""
        committed = ((topic, index) for topic, index, _ in self._of_group(group_id))
        return dict.fromkeys(chain(committed, self._pending.of_group(group_id)))

    def _of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, committed in self._offsets.get(group_id, {}).items():
            for index, offset in committed.items():
                yield topic, index, offset


def _check_new_group(group_id: str) -> None:
    if len(group_id.encode()) > MAX_STRING_BYTES:
        raise InvalidGroupId(f"a group id of more than {MAX_STRING_BYTES} bytes")


def _answered(topic: Message, name: str, partitions: list[Message]) -> Message:
    """A topic of an OffsetCommit, or of a TxnOffsetCommit, which knows no ids."""
    answer: Message = {"name": name, "partitions": partitions}
    if "topic_id" in topic:
        answer["topic_id"] = topic["topic_id"]
    return answer


def _commit_refused(request: Message, error_code: int) -> Message:
    def refused(topic: Message) -> list[Message]:
        indexes = (partition["partition_index"] for partition in topic["partitions"])
        return [{"partition_index": index, "error_code": error_code} for index in indexes]

    return {"topics": [_answered(topic, topic["name"], refused(topic)) for topic in request["topics"]]}


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


def _fetched_stable(topic: str, index: int, committed: CommittedOffset | None, unstable: _Unstable) -> Message:
    if unstable and (topic, index) in unstable:
        return _fetched(index, None, UnstableOffsetCommit.code)
    return _fetched(index, committed)


def _fetched(index: int, committed: CommittedOffset | None, error_code: int = NONE) -> Message:
    committed = committed or NOTHING_COMMITTED
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error_code,
    }
