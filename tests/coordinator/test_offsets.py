"""Committed offsets: who may commit, what is fetched, what takes them away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from oncelog.coordinator.classic import group as classic_group
from oncelog.coordinator.effects import GroupSettings
from oncelog.coordinator.group_coordinator import GROUP_WORK, MAX_CLEANING_RECORDS, MAX_CLEANING_WORK
from oncelog.coordinator.groups import Group
from oncelog.coordinator.offsets import Offsets
from oncelog.coordinator.records import CoordinatorRecord
from oncelog.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.support import Rig, Topics, joined, protocols

WEEK_MS = 7 * 24 * 3_600_000
CHECK_MS = 600_000


class TestCommit:
    @pytest.mark.parametrize("version", range(2, 11))
    def test_without_a_group_in_every_version(self, version: int) -> None:
        rig = Rig()
        assert rig.commit(42, version=version) == 0
        assert rig.committed() == 42
        assert rig.state() == "Empty"

    def test_who_may_not(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        assert rig.commit(1, member_id, 1) == 0
        assert rig.commit(2, member_id, 2) == IllegalGeneration.code
        assert rig.commit(2, member_id, -1) == IllegalGeneration.code
        assert rig.commit(2, "other", 1) == UnknownMemberId.code
        assert rig.commit(2, member_id, 1, group_instance_id="i") == UnknownMemberId.code
        assert rig.commit(2) == UnknownMemberId.code
        assert rig.committed() == 1

    def test_no_group_of_that_generation(self) -> None:
        rig = Rig()
        assert rig.commit(1, "m", 1, version=8) == IllegalGeneration.code
        assert rig.commit(1, "m", 1, version=9) == GroupIdNotFound.code

    def test_a_group_that_awaits_its_assignment_takes_none(self) -> None:
        rig = Rig()
        member_id, _ = rig.new_member()
        rig.pass_time(0)
        assert rig.commit(1, member_id, 1) == RebalanceInProgress.code

    def test_members_may_finish_while_a_round_gathers(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.new_member()
        assert rig.commit(1, member_id, 1) == 0

    def test_an_empty_group_takes_them_from_anybody(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.leave(member_id)
        assert rig.commit(7) == 0
        assert rig.commit(8, member_id, 1) == UnknownMemberId.code
        assert rig.committed() == 7

    def test_what_no_topic_has(self) -> None:
        rig = Rig()
        assert rig.commit(topic="unknown") == UnknownTopicOrPartition.code
        assert rig.commit(partition=4) == UnknownTopicOrPartition.code
        assert rig.commit(partition=-1) == UnknownTopicOrPartition.code
        assert rig.commit(topic="unknown", version=10) == UnknownTopicId.code
        assert rig.log == []

    def test_metadata_has_a_largest_size(self) -> None:
        rig = Rig(GroupSettings(offset_metadata_max_bytes=4))
        assert rig.commit(metadata="1234") == 0
        assert rig.commit(metadata="\u20ac\u20ac") == OffsetMetadataTooLarge.code
        assert rig.commit(metadata=None) == 0


class TestFetch:
    def ask(self, rig: Rig, version: int, topics: list[Message] | None, group_id: str = "g") -> list[Message]:
        if version >= 8:
            body: Message = {"groups": [{"group_id": group_id, "topics": topics}]}
            (answer,) = rig.ask(ApiKey.OFFSET_FETCH, body, version)["groups"]
        else:
            answer = rig.ask(ApiKey.OFFSET_FETCH, {"group_id": group_id, "topics": topics}, version)
        assert answer["error_code"] == 0
        found: list[Message] = answer["topics"]
        return found

    @pytest.mark.parametrize("version", range(1, 10))
    def test_by_name(self, version: int) -> None:
        rig = Rig()
        rig.commit(42, metadata="m")
        (topic,) = self.ask(rig, version, [{"name": "orders", "partition_indexes": [0, 1]}])
        offsets = [(part["committed_offset"], part["metadata"], part["error_code"]) for part in topic["partitions"]]
        assert offsets == [(42, "m", 0), (-1, "", 0)]

    @pytest.mark.parametrize("version", range(2, 11))
    def test_everything(self, version: int) -> None:
        rig = Rig()
        rig.commit(42)
        rig.commit(43, topic="bills", partition=1)
        topics = self.ask(rig, version, None)
        found = [[part["committed_offset"] for part in topic["partitions"]] for topic in topics]
        assert found == [[42], [43]]
        assert self.ask(rig, version, None, "other") == []

    def test_by_id(self) -> None:
        rig = Rig()
        rig.commit(42)
        asked = [{"topic_id": each, "partition_indexes": [0]} for each in (rig.topics.ids["orders"], UUID(int=99))]
        parts = [topic["partitions"][0] for topic in self.ask(rig, 10, asked)]
        found = [(part["committed_offset"], part["error_code"]) for part in parts]
        assert found == [(42, 0), (-1, UnknownTopicId.code)]

    def test_a_topic_that_was_made_anew_has_no_offsets_of_the_old(self) -> None:
        rig = Rig()
        rig.commit(42)
        rig.topics.ids["orders"] = UUID(int=1_000)
        assert rig.committed() == -1
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        assert rig.records[-1].value is None
        rig.commit(1)
        assert rig.committed() == 1


class TestDelete:
    def delete(self, rig: Rig, *topics: str) -> list[int]:
        body = {"group_id": "g", "topics": [{"name": each, "partitions": [{"partition_index": 0}]} for each in topics]}
        answer = rig.ask(ApiKey.OFFSET_DELETE, body)
        return [answer["error_code"], *(topic["partitions"][0]["error_code"] for topic in answer["topics"])]

    def test_of_topics_that_no_member_reads(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        for topic in ("orders", "bills"):
            rig.commit(1, member_id, 1, topic=topic)
        assert self.delete(rig, "orders", "bills", "unknown") == [
            0,
            GroupSubscribedToTopic.code,
            0,
            UnknownTopicOrPartition.code,
        ]
        assert (rig.committed(), rig.committed(topic="bills")) == (1, -1)

    def test_of_no_group(self) -> None:
        assert self.delete(Rig(), "orders") == [GroupIdNotFound.code]

    def test_of_members_whose_topics_are_not_known(self) -> None:
        rig = Rig()
        member_id, ticket = rig.new_member(protocol_type="connect")
        rig.pass_time(0)
        rig.sync(member_id, joined(ticket)["generation_id"], protocol_type="connect")
        assert self.delete(rig, "orders") == [NonEmptyGroup.code]


class TestExpiry:
    def test_of_a_group_without_members_from_its_last_commit(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.pass_time(WEEK_MS - 1)
        assert rig.committed() == 1
        rig.pass_time(CHECK_MS)
        assert rig.committed() == -1
        assert rig.state() == "Dead"

    def test_of_a_group_that_became_empty_from_then_on(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.commit(1, member_id, 1)
        for _ in range(3):
            rig.now_ms += WEEK_MS
            rig.heartbeat(member_id, 1)
        rig.leave(member_id)
        rig.pass_time(WEEK_MS - 1)
        assert rig.committed() == 1
        rig.pass_time(CHECK_MS)
        assert rig.committed() == -1
        assert rig.state() == "Dead"
        rig.crash()
        assert rig.state() == "Dead"

    @pytest.mark.parametrize("stopped_ms", [-3 * WEEK_MS, 0, 52 * WEEK_MS])
    def test_the_time_while_the_broker_was_stopped_does_not_count(self, stopped_ms: int) -> None:
        """However long that was, or a clock that was set meanwhile says it was."""
        rig = Rig()
        rig.commit(1)
        rig.pass_time(WEEK_MS - 10 * CHECK_MS)
        rig.commit(2, partition=1)
        rig.now_ms += stopped_ms
        rig.crash()
        rig.commit(3, partition=2)
        rig.pass_time(9 * CHECK_MS)
        assert [rig.committed(partition=index) for index in range(3)] == [1, 2, 3]
        if stopped_ms >= 0:  # else its stamp is yet to come, and it goes late
            rig.pass_time(2 * CHECK_MS)
            assert [rig.committed(partition=index) for index in range(3)] == [-1, 2, 3]
            rig.pass_time(WEEK_MS)
            assert [rig.committed(partition=index) for index in range(3)] == [-1, -1, -1]

    def test_not_while_a_member_reads_the_topic(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.commit(1, member_id, 1)
        rig.commit(2, member_id, 1, topic="bills")
        rig.now_ms += WEEK_MS
        rig.heartbeat(member_id, 1)
        rig.pass_time(5_000)
        assert (rig.committed(), rig.committed(topic="bills")) == (1, -1)

    def test_not_while_it_is_unknown_what_members_read(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group(protocols=[{"name": "range", "metadata": b"\x00"}])
        rig.commit(2, member_id, 1, topic="bills")
        rig.now_ms += WEEK_MS
        rig.heartbeat(member_id, 1)
        rig.pass_time(5_000)
        assert rig.committed(topic="bills") == 2

    def test_when_the_client_said(self) -> None:
        rig = Rig()
        rig.commit(1, version=4, retention_time_ms=1_000)
        rig.commit(2, partition=1)
        rig.crash()
        rig.pass_time(CHECK_MS)
        assert (rig.committed(), rig.committed(partition=1)) == (-1, 2)

    def test_many_go_in_several_batches(self) -> None:
        rig = Rig(topics=Topics(orders=2_500))
        for partition in range(2_500):
            rig.commit(1, partition=partition)
        rig.now_ms += WEEK_MS
        sizes = []
        while (due_ms := rig.coordinator.next_deadline_ms()) is not None and due_ms <= rig.now_ms:
            effects = rig.coordinator.expire(rig.now_ms)
            sizes.append(len(effects.records))
            rig.apply(effects)
        assert sizes == [MAX_CLEANING_RECORDS] * (2_500 // MAX_CLEANING_RECORDS)
        assert rig.state() == "Dead"

    def test_groups_that_keep_theirs_are_looked_at_a_part_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig()
        for number in range(1_000):
            rig.commit(1, group_id=f"group-{number}")
        looked: list[str] = []
        expired = Offsets.expired

        def noted(offsets: Offsets, group: Group, *args: Any) -> list[CoordinatorRecord]:
            looked.append(group.group_id)
            return expired(offsets, group, *args)

        monkeypatch.setattr(Offsets, "expired", noted)
        rig.now_ms += CHECK_MS
        parts = []
        while (due_ms := rig.coordinator.next_deadline_ms()) is not None and due_ms <= rig.now_ms:
            before = len(looked)
            rig.apply(rig.coordinator.expire(rig.now_ms))
            parts.append(len(looked) - before)
        assert sorted(looked) == sorted(f"group-{number}" for number in range(1_000))
        assert max(parts) <= MAX_CLEANING_WORK // (GROUP_WORK + 1) + 1

    def test_what_members_read_is_found_out_once_for_all_offsets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig(topics=Topics(orders=50, bills=50))
        members = rig.stable_group(3)
        for partition in range(50):
            for topic in ("orders", "bills"):
                rig.commit(1, members[0], 1, topic=topic, partition=partition)
        read: list[bytes] = []
        topics_of = classic_group._topics_of

        def noted(subscription: bytes) -> list[str]:
            read.append(subscription)
            return topics_of(subscription)

        monkeypatch.setattr(classic_group, "_topics_of", noted)
        rig.now_ms += CHECK_MS
        rig.apply(rig.coordinator.expire(rig.now_ms))
        assert len(read) <= len(members)


class TestDeletedTopics:
    def test_their_offsets_go(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.commit(2, topic="bills")
        del rig.topics.partitions["orders"]
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        assert (rig.committed(), rig.committed(topic="bills")) == (-1, 2)

    def test_offsets_in_other_topics_are_not_looked_at_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig()
        for number in range(100):
            rig.commit(1, group_id=f"group-{number}")
        rig.commit(2, topic="bills")
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        looked: list[str] = []
        gone = Offsets._gone

        def noted(offsets: Offsets, topic: str, committed: Any) -> Iterable[int]:
            looked.append(topic)
            return gone(offsets, topic, committed)

        monkeypatch.setattr(Offsets, "_gone", noted)
        del rig.topics.partitions["bills"]
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        assert (rig.committed(topic="bills"), rig.committed("group-1")) == (-1, 1)
        assert set(looked) == {"bills"}

    def test_those_of_a_topic_that_was_made_anew_go(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        rig.topics.ids["orders"] = UUID(int=1_000)
        rig.commit(2, partition=1)
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        assert rig.coordinator._offsets.count("g") == 1
        assert (rig.committed(), rig.committed(partition=1)) == (-1, 2)

    def test_also_those_that_were_deleted_while_nobody_looked(self) -> None:
        rig = Rig()
        rig.commit(1)
        del rig.topics.partitions["orders"]
        rig.crash()
        assert rig.committed() == -1

    def test_a_member_that_reads_it_does_not_keep_them(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group(protocols=protocols("range", topics=["orders"]))
        rig.commit(1, member_id, 1)
        del rig.topics.partitions["orders"]
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        assert rig.committed() == -1
        assert rig.state() == "Stable"
