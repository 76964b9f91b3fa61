"""Offsets that transactions commit: who may, when they become true, what voids them, and who may see them."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.coordinator.effects import GroupSettings
from oncelog.errors import (
    FencedInstanceId,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.support import Rig, joined

WEEK_MS = 7 * 24 * 3_600_000
CHECK_MS = 600_000
P1, P2 = 1001, 1002


def fetched(rig: Rig, *, is_stable: bool = True, version: int = 9, partitions: tuple[int, ...] = (0,)) -> list[Message]:
    topics: list[Message] = [{"name": "orders", "partition_indexes": list(partitions)}]
    if version >= 8:
        topics[0]["topic_id"] = rig.topics.ids["orders"]
        body: Message = {"groups": [{"group_id": "g", "topics": topics}], "require_stable": is_stable}
        (answer,) = rig.ask(ApiKey.OFFSET_FETCH, body, version)["groups"]
    else:
        body = {"group_id": "g", "topics": topics, "require_stable": is_stable}
        answer = rig.ask(ApiKey.OFFSET_FETCH, body, version)
    found: list[Message] = answer["topics"][0]["partitions"]
    return found


def stable(rig: Rig, partition: int = 0) -> tuple[int, int]:
    """What a consumer hears that wants stable offsets: the error and the offset."""
    (part,) = fetched(rig, partitions=(partition,))
    return part["error_code"], part["committed_offset"]


class TestWhoMay:
    @pytest.mark.parametrize("version", range(6))
    def test_without_a_group_in_every_version(self, version: int) -> None:
        rig = Rig()
        assert rig.commit_in_transaction(P1, 42, version=version) == 0
        assert rig.state() == "Empty"
        assert rig.committed() == -1
        rig.end_transaction(P1, is_commit=True)
        assert rig.committed() == 42

    def test_there_is_no_group_of_that_generation(self) -> None:
        rig = Rig()
        assert rig.commit_in_transaction(P1, 1, "m", 1) == IllegalGeneration.code
        assert rig.commit_in_transaction(P1, 1, "m", -1) == 0

    def test_a_member_of_this_generation(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        assert rig.commit_in_transaction(P1, 1, member_id, 1) == 0
        assert rig.commit_in_transaction(P1, 1, member_id, 2) == IllegalGeneration.code
        assert rig.commit_in_transaction(P1, 1, member_id, -1) == IllegalGeneration.code
        assert rig.commit_in_transaction(P1, 1, "other", 1) == UnknownMemberId.code
        assert rig.commit_in_transaction(P1, 1, "", 1) == UnknownMemberId.code
        assert rig.commit_in_transaction(P1, 1, member_id, 1, group_instance_id="i") == UnknownMemberId.code

    def test_who_does_not_say_who_it_is_even_if_there_are_members(self) -> None:
        """Before version 3 nobody could say it."""
        rig = Rig()
        rig.stable_group()
        for version in range(6):
            assert rig.commit_in_transaction(P1, 1, version=version) == 0

    def test_a_static_member_until_its_successor_came(self) -> None:
        rig = Rig()
        first = rig.join(group_instance_id="i")
        rig.pass_time(0)
        member_id, generation = joined(first)["member_id"], joined(first)["generation_id"]
        rig.sync(member_id, generation, {member_id: b"all"}, group_instance_id="i")
        assert rig.commit_in_transaction(P1, 1, member_id, generation, group_instance_id="i") == 0
        rig.join(group_instance_id="i")
        assert rig.commit_in_transaction(P1, 1, member_id, generation, group_instance_id="i") == FencedInstanceId.code

    def test_also_while_the_group_awaits_its_assignment(self) -> None:
        """Unlike a plain commit: what the transaction has read, it has read as a member of the generation."""
        rig = Rig()
        member_id, _ = rig.new_member()
        rig.pass_time(0)
        assert rig.state() == "CompletingRebalance"
        assert rig.commit_in_transaction(P1, 1, member_id, 1) == 0

    def test_a_member_of_a_consumer_group_in_its_epoch(self) -> None:
        rig = Rig()
        body: Message = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1_000}
        body |= {"subscribed_topic_names": ["orders"], "topic_partitions": []}
        epoch = rig.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, body)["member_epoch"]
        assert rig.commit_in_transaction(P1, 1, "m", epoch) == 0
        assert rig.commit_in_transaction(P1, 1) == 0
        assert rig.commit_in_transaction(P1, 1, "m", epoch + 1) == IllegalGeneration.code
        assert rig.commit_in_transaction(P1, 1, "other", epoch) == UnknownMemberId.code

    def test_what_cannot_be_kept(self) -> None:
        rig = Rig(GroupSettings(offset_metadata_max_bytes=4))
        assert rig.commit_in_transaction(P1, topic="unknown") == UnknownTopicOrPartition.code
        assert rig.commit_in_transaction(P1, partition=4) == UnknownTopicOrPartition.code
        assert rig.commit_in_transaction(P1, metadata="12345") == OffsetMetadataTooLarge.code
        assert rig.log == []
        assert rig.state() == "Dead"


class TestTheEnd:
    def test_aborted_offsets_never_were(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.commit_in_transaction(P1, 2)
        rig.commit_in_transaction(P1, 2, group_id="other")
        rig.end_transaction(P1, is_commit=False)
        assert (rig.committed(), stable(rig)) == (1, (0, 1))
        assert rig.state("other") == "Dead"

    def test_the_last_word_of_a_transaction_counts(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.commit_in_transaction(P1, 3)
        rig.commit_in_transaction(P1, 2)
        rig.end_transaction(P1, is_commit=True)
        assert rig.committed() == 2

    def test_every_transaction_ends_for_itself(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.commit_in_transaction(P2, 2, partition=1)
        rig.end_transaction(P1, is_commit=True)
        assert (rig.committed(), rig.committed(partition=1)) == (1, -1)
        rig.end_transaction(P2, is_commit=True)
        assert (rig.committed(), rig.committed(partition=1)) == (1, 2)

    def test_a_commit_outside_keeps_its_word_against_an_older_one_inside(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 5)
        rig.commit(10)
        rig.end_transaction(P1, is_commit=True)
        assert rig.committed() == 10

    def test_a_newer_one_inside_wins(self) -> None:
        rig = Rig()
        rig.commit(10)
        rig.commit_in_transaction(P1, 5)
        rig.end_transaction(P1, is_commit=True)
        assert rig.committed() == 5

    @pytest.mark.parametrize("order", [(P1, P2), (P2, P1)])
    def test_of_two_transactions_the_one_that_wrote_later_wins(self, order: tuple[int, int]) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.commit_in_transaction(P2, 2)
        for producer_id in order:
            rig.end_transaction(producer_id, is_commit=True)
        assert rig.committed() == 2

    def test_a_marker_without_anything_to_end(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.end_transaction(P1, is_commit=True)
        rig.end_transaction(P1, is_commit=False)
        assert rig.committed() == 1

    def test_a_crash_changes_nothing(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.commit_in_transaction(P2, 2, partition=1)
        rig.end_transaction(P2, is_commit=True)
        before = rig.coordinator.hard_state()
        rig.crash()
        assert rig.coordinator.hard_state() == before
        assert stable(rig) == (UnstableOffsetCommit.code, -1)
        rig.end_transaction(P1, is_commit=True)
        assert (stable(rig), stable(rig, 1)) == ((0, 1), (0, 2))


class TestStability:
    @pytest.mark.parametrize("version", range(7, 11))
    def test_only_who_wants_stable_offsets_must_wait(self, version: int) -> None:
        rig = Rig()
        rig.commit(1)
        rig.commit(1, partition=1)
        rig.commit_in_transaction(P1, 2)
        rig.commit_in_transaction(P1, 2, partition=2)

        def seen(*, is_stable: bool) -> list[tuple[int, int]]:
            parts = fetched(rig, is_stable=is_stable, version=version, partitions=(0, 1, 2))
            return [(part["error_code"], part["committed_offset"]) for part in parts]

        unstable = (UnstableOffsetCommit.code, -1)
        assert seen(is_stable=True) == [unstable, (0, 1), unstable]
        assert seen(is_stable=False) == [(0, 1), (0, 1), (0, -1)]
        rig.end_transaction(P1, is_commit=True)
        assert seen(is_stable=True) == [(0, 2), (0, 1), (0, 2)]

    def test_all_offsets_of_a_group(self) -> None:
        """What is pending alone is not among them, as in Kafka."""
        rig = Rig()
        rig.commit(1)
        rig.commit_in_transaction(P1, 2)
        rig.commit_in_transaction(P1, 2, partition=1)
        body: Message = {"groups": [{"group_id": "g", "topics": None}], "require_stable": True}
        (topic,) = rig.ask(ApiKey.OFFSET_FETCH, body)["groups"][0]["topics"]
        found = [(part["partition_index"], part["error_code"]) for part in topic["partitions"]]
        assert found == [(0, UnstableOffsetCommit.code)]

    def test_a_topic_that_nobody_knows_is_not_unstable(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 2)
        topics = [{"topic_id": UUID(int=99), "partition_indexes": [0]}]
        body: Message = {"groups": [{"group_id": "g", "topics": topics}], "require_stable": True}
        (topic,) = rig.ask(ApiKey.OFFSET_FETCH, body, 10)["groups"][0]["topics"]
        assert topic["partitions"][0]["error_code"] == UnknownTopicId.code

    def test_as_long_as_one_of_several_transactions_is_open(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.commit_in_transaction(P2, 2)
        rig.commit(3)
        rig.end_transaction(P1, is_commit=False)
        assert stable(rig) == (UnstableOffsetCommit.code, -1)
        rig.end_transaction(P2, is_commit=False)
        assert stable(rig) == (0, 3)


class TestWhatTakesThemAway:
    def test_offsets_that_are_deleted(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.commit_in_transaction(P1, 1, partition=1)
        partitions = [{"partition_index": index} for index in (0, 3)]
        body = {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]}
        assert rig.ask(ApiKey.OFFSET_DELETE, body)["error_code"] == 0
        assert [entry.value is None for entry in rig.records] == [False, False, True]
        rig.end_transaction(P1, is_commit=True)
        assert (rig.committed(), rig.committed(partition=1)) == (-1, 1)

    def test_a_group_that_is_deleted(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.commit_in_transaction(P1, 2)
        rig.commit_in_transaction(P1, 2, partition=1)
        (result,) = rig.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["g"]})["results"]
        assert result["error_code"] == 0
        assert rig.state() == "Dead"
        rig.end_transaction(P1, is_commit=True)
        assert (rig.committed(), rig.state()) == (-1, "Dead")
        rig.crash()
        assert rig.state() == "Dead"

    def test_what_follows_a_deletion_counts(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(P1, 1)
        rig.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["g"]})
        rig.commit_in_transaction(P1, 2)
        rig.end_transaction(P1, is_commit=True)
        assert rig.committed() == 2

    def test_a_topic_that_is_deleted(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.commit_in_transaction(P1, 2)
        rig.commit_in_transaction(P1, 2, topic="bills")
        del rig.topics.partitions["bills"]
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        rig.end_transaction(P1, is_commit=True)
        assert (rig.committed(), rig.committed(topic="bills")) == (2, -1)
        rig.apply(rig.coordinator.topics_changed(rig.now_ms))
        assert len(rig.records) == 4, "one tombstone, and no other"

    def test_no_retention_while_the_transaction_is_open(self) -> None:
        rig = Rig()
        rig.commit(1)
        rig.commit(1, partition=1)
        rig.commit_in_transaction(P1, 2)
        rig.pass_time(WEEK_MS + CHECK_MS)
        assert (rig.committed(), rig.committed(partition=1), rig.state()) == (1, -1, "Empty")
        rig.end_transaction(P1, is_commit=False)
        rig.pass_time(CHECK_MS)
        assert (rig.committed(), rig.state()) == (-1, "Dead")

    def test_a_group_stays_while_all_it_has_is_pending(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.commit_in_transaction(P1, 2, member_id, 1)
        rig.leave(member_id)
        rig.pass_time(WEEK_MS + CHECK_MS)
        assert rig.state() == "Empty"
        rig.end_transaction(P1, is_commit=True)
        assert rig.committed() == 2
