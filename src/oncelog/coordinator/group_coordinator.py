"""The group coordinator of one partition of `__consumer_offsets`.

Owns which part answers a request, and the regular cleaning of what is over. A request yields records and replies; what
the log says changes by `replay` alone. Soft state (sessions, who waits in a join round) may change with a request or
with time; it dies with the process and never decides what the log has decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from oncelog.coordinator.absence import NO_ABSENCE, Absence
from oncelog.coordinator.classic.group import ClassicGroup, State
from oncelog.coordinator.classic.groups import ClassicGroups
from oncelog.coordinator.consumer.consumer_groups import ConsumerGroups
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply, TopicsView, answer
from oncelog.coordinator.groups import Group, GroupMap, MemberRoom
from oncelog.coordinator.offsets import Offsets
from oncelog.coordinator.records import CoordinatorRecord, RecordType
from oncelog.errors import NONE, GroupIdNotFound, KafkaError, NotCoordinator, clipped
from oncelog.types import NO_OFFSET, NO_PRODUCER_ID
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

FIRST_DESCRIBE_WITH_NOT_FOUND = 6

MAX_CLEANING_RECORDS = 250
"""How many tombstones cleaning writes at once, which takes some milliseconds; the rest follows with the next call of
`expire`, and so does what else is to be looked at after so many members and offsets:"""
MAX_CLEANING_WORK = 2_000
GROUP_WORK = 5
"""What it takes to look at a group without any."""

_OFFSETS = (RecordType.OFFSET_COMMIT, RecordType.LEGACY_OFFSET_COMMIT)


_Handler = Callable[[Message, Caller, int], Effects]


class GroupCoordinator:
    """Composes classic groups, consumer groups and offsets."""

    def __init__(
        self, settings: GroupSettings, topics: TopicsView, new_id: Callable[[], str], room: MemberRoom | None = None
    ) -> None:
        """Coordinators of one broker share the `room` of their members."""
        self._settings = settings
        self._groups = GroupMap(room)
        self._classic = ClassicGroups(settings, self._groups, new_id)
        self._consumer = ConsumerGroups(settings, topics, self._groups, new_id)
        self._offsets = Offsets(settings, topics, self._groups)
        self._left_protocol: set[str] = set()
        """While the log is loaded: groups whose last word, so far, is that they are no consumer groups any more."""
        self._is_loaded = False
        self._cleaning_due_ms: int | None = None
        self._newest_ms = 0
        """When the newest record of the log was written."""
        self._absence = NO_ABSENCE
        self._uncleaned: deque[str] = deque()
        """Groups that the cleaning under way has still to look at."""
        self._has_deleted_topics = False
        """There are more of them than one call could take away."""
        self._handlers: dict[ApiKey, _Handler] = {
            ApiKey.OFFSET_COMMIT: self._commit_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._offsets.commit_in_transaction,
            ApiKey.OFFSET_FETCH: self._offsets.fetch,
            ApiKey.OFFSET_DELETE: self._offsets.delete,
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._consumer.heartbeat,
            ApiKey.DESCRIBE_GROUPS: self._describe,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self._describe_consumer_groups,
            ApiKey.LIST_GROUPS: self._list,
            ApiKey.DELETE_GROUPS: self._delete,
        }

    # Requests

    def handle(self, api_key: ApiKey, body: Message, caller: Caller, now_ms: int) -> Effects:
        """A request's records and replies. Of a request for several groups (DescribeGroups, DeleteGroups, OffsetFetch
        from version 8, ConsumerGroupDescribe) the body holds this partition's groups only, and so does the reply. The
        records of a TxnOffsetCommit are the producer's that it names, and are replayed with its id."""
        return self._handlers[api_key](body, caller, now_ms)

    def _is_classic(self, body: Message) -> bool:
        return not isinstance(self._groups.get(body["group_id"]), ConsumerGroup)

    def _join(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        group = self._groups.get(body["group_id"])
        if not isinstance(group, ConsumerGroup):
            return self._classic.join(body, caller, now_ms)
        if not group.is_empty:
            return self._consumer.join(body, caller, now_ms)
        # Without members a group has no protocol, and takes the one of whoever comes first.
        effects = self._classic.join(body, caller, now_ms)
        if self._groups[group.group_id] is not group:
            effects.records[:0] = group.tombstones()
        return effects

    def _sync(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return (self._classic if self._is_classic(body) else self._consumer).sync(body, caller, now_ms)

    def _heartbeat(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        if self._is_classic(body):
            return self._classic.heartbeat(body, caller, now_ms)
        return self._consumer.classic_heartbeat(body, caller, now_ms)

    def _leave(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return (self._classic if self._is_classic(body) else self._consumer).leave(body, caller, now_ms)

    def _commit_offsets(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        effects = self._offsets.commit(body, caller, now_ms)
        if effects.records:
            group = self._groups.get(body["group_id"])
            if type(group) is ClassicGroup:
                self._classic.offsets_committed(group, body["member_id"], now_ms)
        return effects

    def _delete(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in dict.fromkeys(body["groups_names"]):
            code = NONE
            try:
                group = self._groups.existing(group_id)
                group.check_delete()
                records += [*self._offsets.tombstones(group_id), *group.tombstones()]
            except KafkaError as error:
                code = error.code
            results.append({"group_id": group_id, "error_code": code})
        return Effects(records, [Reply(caller.ticket, {"results": results})])

    def _describe(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return answer(caller, {"groups": [self._described(group_id, caller.version) for group_id in body["groups"]]})

    def _describe_consumer_groups(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return answer(caller, {"groups": [self._consumer.describe(group_id) for group_id in body["group_ids"]]})

    def _described(self, group_id: str, version: int) -> Message:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.described()
        unknown: Message = {"group_id": group_id, "group_state": State.DEAD.value, "error_code": NONE}
        unknown |= {"protocol_type": "", "protocol_data": "", "members": []}
        if version >= FIRST_DESCRIBE_WITH_NOT_FOUND:
            problem = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
            unknown |= {"error_code": GroupIdNotFound.code, "error_message": clipped(problem)}
        return unknown

    def _list(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        groups = [group for group in self.listing(body) if group is not None]
        return answer(caller, {"error_code": NONE, "groups": groups})

    def listing(self, body: Message) -> Iterator[Message | None]:
        """What the answer to a ListGroups tells of each group, as it is when its turn comes; None for one that is not
        asked for, or gone by then. Groups may come and go meanwhile."""
        states = {state.lower() for state in body["states_filter"]}
        types = {group_type.lower() for group_type in body["types_filter"]}
        for group_id in list(self._groups):
            group = self._groups.get(group_id)
            if (
                group is None
                or (states and group.state_name.lower() not in states)
                or (types and group.group_type not in types)
            ):
                yield None
                continue
            yield {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state_name,
                "group_type": group.group_type,
            }

    # The log

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,
        log_offset: int = NO_OFFSET,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """What the log says becomes true. Of a live record the timestamp is now. An offset that a producer committed in
        a transaction waits for `transaction_ended`."""
        if record.type in _OFFSETS:
            self._offsets.replay(record, log_offset, producer_id)
            self._follow_offsets(record.key["group"])
        elif record.type is RecordType.GROUP_METADATA:
            self._classic.replay(record, timestamp_ms)
            self._notice_downgrade(record)
        else:
            self._consumer.replay(record)
            if record.type is RecordType.CONSUMER_GROUP_METADATA and record.value is None and not self._is_loaded:
                self._left_protocol.add(record.key["group_id"])
        self._newest_ms = max(self._newest_ms, timestamp_ms)
        if self._cleaning_due_ms is None:
            self._cleaning_due_ms = timestamp_ms + self._settings.offsets_retention_check_interval_ms

    def transaction_ended(self, producer_id: int, is_commit: bool) -> None:
        """The log has the marker that ends the producer's transaction."""
        for group_id in self._offsets.transaction_ended(producer_id, is_commit):
            self._follow_offsets(group_id)

    def _notice_downgrade(self, record: CoordinatorRecord) -> None:
        """A broker that ended between a downgrade and the rebalance that follows it: nobody reads yet what the members
        of the other protocol had, so the rebalance is still to come."""
        if self._is_loaded:
            return
        group_id = record.key["group"]
        if group_id in self._left_protocol:
            self._left_protocol.remove(group_id)
            self._groups.rebalance_wanted.add(group_id)
        else:
            self._groups.rebalance_wanted.discard(group_id)

    def _follow_offsets(self, group_id: str) -> None:
        """Offsets without members make a group, which goes with the last of them."""
        group = self._groups.get(group_id)
        if group is None:
            if self._offsets.has_offsets(group_id):
                self._groups[group_id] = ClassicGroup(group_id)
        elif type(group) is ClassicGroup and group.is_blank and not self._offsets.has_offsets(group_id):
            del self._groups[group_id]

    def loaded(self, now_ms: int) -> Effects:
        """The whole log was replayed: sessions begin anew, and what happened to topics meanwhile is caught up with. The
        topics must be known by now: offsets in those that are not are given up."""
        self._is_loaded = True
        self._left_protocol.clear()
        self._classic.loaded(now_ms)
        self._consumer.loaded(now_ms)
        effects = Effects(self._follow_topics(), [])
        if self._cleaning_due_ms is not None:
            self._cleaning_due_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        self._absence = Absence(self._newest_ms, now_ms)
        return effects

    # Time, and the world

    def expire(self, now_ms: int) -> Effects:
        """What is due by the clock: sessions, join rounds, offsets."""
        effects = self._classic.expire(now_ms)
        effects.extend(self._consumer.expire(now_ms))
        if self._cleaning_due_ms is not None and now_ms >= self._cleaning_due_ms:
            self._cleaning_due_ms = now_ms + self._settings.offsets_retention_check_interval_ms
            self._uncleaned.extend(self._groups)
        effects.records.extend(self._follow_topics() if self._has_deleted_topics else self._clean(now_ms))
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do; a time that has passed means at once."""
        if self._has_deleted_topics or self._uncleaned:
            return 0
        deadlines = (self._classic.next_deadline_ms(), self._consumer.next_deadline_ms(), self._cleaning_due_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def topics_changed(self, now_ms: int) -> Effects:
        """Topics were created, grew, or were deleted. Groups follow with the next `expire`, which is due at once."""
        self._consumer.topics_changed()
        return Effects(self._follow_topics(), [])

    def _follow_topics(self) -> list[CoordinatorRecord]:
        """Tombstones, as many as one call may write, for offsets in topics that are no more."""
        records = self._offsets.of_deleted_topics(MAX_CLEANING_RECORDS)
        self._has_deleted_topics = len(records) == MAX_CLEANING_RECORDS
        return records

    def _clean(self, now_ms: int) -> list[CoordinatorRecord]:
        """Tombstones, as many as one call may write and find, for what has expired."""
        records: list[CoordinatorRecord] = []
        work = 0
        while self._uncleaned and len(records) < MAX_CLEANING_RECORDS and work < MAX_CLEANING_WORK:
            group = self._groups.get(self._uncleaned.popleft())
            if group is not None:
                work += GROUP_WORK + group.size + self._offsets.count(group.group_id)
                records += self._clean_group(group, MAX_CLEANING_RECORDS - len(records), now_ms)
        return records

    def _clean_group(self, group: Group, limit: int, now_ms: int) -> list[CoordinatorRecord]:
        """A group without members goes with its last offset."""
        expired = self._offsets.expired(group, self._absence, limit + 1, now_ms)
        if len(expired) > limit:
            self._uncleaned.append(group.group_id)
            return expired[:limit]
        if len(expired) < self._offsets.count(group.group_id) or self._offsets.has_pending(group.group_id):
            return expired
        if isinstance(group, ClassicGroup) and group.is_simple:
            if group.is_blank and not expired:
                del self._groups[group.group_id]
            return expired
        try:
            group.check_delete()
        except KafkaError:
            return expired
        return [*expired, *group.tombstones()]

    def forget(self, ticket: object) -> None:
        """The connection of a ticket is gone: nobody reads its reply."""
        self._classic.forget(ticket)

    def unload(self) -> list[Reply]:
        """Another broker coordinates, or the disk failed: all who wait are answered NOT_COORDINATOR."""
        self._groups.leave_room()
        return [reply for group in self._groups.values() for reply in group.release_waiting(NotCoordinator.code)]

    def hard_state(self) -> object:
        """Comparable; what a replay of the log must give again."""
        groups = {group_id: group.hard_state() for group_id, group in self._groups.items()}
        return {group_id: state for group_id, state in groups.items() if state is not None}, self._offsets.hard_state()
