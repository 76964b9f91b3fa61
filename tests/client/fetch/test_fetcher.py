"""What the fetcher does, rule by rule, against a model cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.client.consumer_errors import LogTruncated, NoOffsetForPartition, PositionOutOfRange
from oncelog.client.consumer_records import OffsetAndMetadata, OffsetAndTimestamp
from oncelog.client.fetch.exchange import Exchange
from oncelog.client.fetch.inbox import Inbox
from oncelog.client.fetch.partitions import EARLIEST, LATEST, PartitionState, Stage
from oncelog.errors import (
    CorruptMessage,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import EpochEndOffset, FetchRequest
from oncelog.wire.hot import CurrentLeader
from tests.sim.consumer_world import TOPIC, ConsumerWorld
from tests.sim.model_reading import VERSIONS, ReadCluster
from tests.support.batches import TIMESTAMP_MS

FIRST = TopicPartition(TOPIC, 0)
A_WHILE_MS = 500
ONE_NODE = {"node_count": 1}


def world(batches: int = 3, **options: Any) -> ConsumerWorld:
    """A log of some batches of two records, and a reader that has not begun."""
    made = ConsumerWorld(partitions=1, **options)
    for _ in range(batches):
        made.append(0, 2)
    return made


def caught_up(batches: int = 3, **options: Any) -> ConsumerWorld:
    """The same, read to its end."""
    made = world(batches, **options)
    made.assign(0)
    made.reset(0, EARLIEST)
    made.pass_time(A_WHILE_MS)
    assert made.state(0).position == 2 * batches
    return made


def fetches(made: ConsumerWorld) -> list[FetchRequest]:
    return [request for _, request in made.cluster.asked(ApiKey.FETCH) if isinstance(request, FetchRequest)]


def goes_on(made: ConsumerWorld) -> None:
    """What is written from now on is read."""
    made.cluster.stopped.clear()
    made.cluster.publish()
    end = made.log(0).end_offset
    made.append(0, 2)
    made.pass_time(2_000)
    assert made.state(0).position == end + 2


class TestReading:
    def test_everything_from_the_position_on_comes_once_and_in_order(self) -> None:
        made = world(20)
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].values == made.log(0).values(0)

    def test_reading_may_begin_inside_a_batch(self) -> None:
        made = world()
        made.assign(0)
        made.seek(0, 3)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].values == made.log(0).values(3)

    def test_what_was_spoiled_on_its_way_is_fetched_again(self) -> None:
        made = world(20)
        made.start(0)
        made.settle_down()
        made.read(3)
        made.fetcher.fetch_again(FIRST, made.state(0).seek_count - 1)  # of a position that nobody is at any more
        assert made.state(0).fetch_offset > 3
        made.fetcher.fetch_again(FIRST, made.state(0).seek_count)
        assert (made.state(0).position, made.state(0).fetch_offset) == (3, 3)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].values == made.log(0).values(0)

    def test_the_next_fetch_is_under_way_before_anybody_reads(self) -> None:
        made = world(20)
        made.start(0)
        made.pass_time(40, reading=False)
        asked = [one.fetch_offset for request in fetches(made) for topic in request.topics for one in topic.partitions]
        assert made.state(0).position == 0
        assert asked == [0, made.state(0).fetch_offset // 2]

    def test_two_answers_of_a_partition_wait_and_no_more(self) -> None:
        made = world(40)
        made.start(0)
        made.pass_time(A_WHILE_MS, reading=False)
        assert made.state(0).waiting == 2
        count = len(fetches(made))
        made.pass_time(A_WHILE_MS, reading=False)
        assert len(fetches(made)) == count

    def test_a_reader_that_goes_on_wakes_the_fetcher(self) -> None:
        made = world(40)
        made.start(0)
        made.pass_time(A_WHILE_MS, reading=False)
        wakes = made.wakes
        made.read(1)
        assert made.wakes == wakes + 1

    def test_no_more_is_asked_for_than_the_inbox_has_room_for(self) -> None:
        made = ConsumerWorld(partitions=12, fetch_queue_max_bytes=2_000, fetch_max_bytes=2_000)
        for index in range(12):
            for _ in range(10):
                made.append(index, 3)
        made.start(*range(12))
        made.pass_time(A_WHILE_MS, reading=False)
        assert made.most_buffered > 1_000
        assert made.inbox.buffered_bytes <= 2_000
        made.finish()

    def test_a_batch_above_every_limit_is_read(self) -> None:
        made = world(1, max_partition_fetch_bytes=50, fetch_max_bytes=60)
        made.append(0, 1, value_bytes=900)
        made.append(0, 1)
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 4

    def test_an_empty_answer_changes_nothing_and_brings_no_haste(self) -> None:
        made = caught_up()
        count = len(fetches(made))
        made.pass_time(1_000)
        assert len(fetches(made)) - count == 1_000 // made.config.fetch_max_wait_ms
        assert made.errors == []

    @pytest.mark.parametrize("has_sessions", [True, False])
    def test_a_broker_that_does_not_wait_for_data_is_given_a_rest(self, has_sessions: bool) -> None:
        made = caught_up(model={"has_sessions": has_sessions})
        made.cluster.is_hasty = True
        count = len(fetches(made))
        made.pass_time(1_000)
        assert len(fetches(made)) - count < 40
        goes_on(made)

    def test_lag_is_known(self) -> None:
        made = caught_up()
        assert made.state(0).high_watermark == 6
        assert made.state(0).last_stable_offset == 6
        assert made.state(0).log_start_offset == 0

    def test_a_broker_that_asks_for_a_pause_gets_it(self) -> None:
        made = caught_up()
        made.cluster.throttle_ms = 300
        made.append(0)
        made.pass_time(50)
        count = len(fetches(made))
        made.pass_time(200)
        assert len(fetches(made)) == count

    def test_what_the_user_configured_is_asked_for(self) -> None:
        made = world(fetch_min_bytes=7, isolation_level="read_committed", client_rack="east")
        made.start(0)
        made.pass_time(10)
        request = fetches(made)[0]
        assert (request.min_bytes, request.max_wait_ms, request.isolation_level) == (7, 50, 1)
        assert request.rack_id == "east"

    def test_old_brokers_are_read_by_name(self) -> None:
        made = world(model={"versions": {**VERSIONS, ApiKey.FETCH: (4, 12)}})
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert fetches(made)[0].topics[0].name == TOPIC
        assert made.state(0).position == 6

    def test_a_broker_that_knows_no_fetch_is_named_once(self) -> None:
        made = world(model={"versions": {key: one for key, one in VERSIONS.items() if key != ApiKey.FETCH}})
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert [str(error) for error in made.errors] == ["the broker does not serve Fetch"]


class TestManyPartitions:
    """What is asked costs what changed, not what is assigned."""

    COUNT = 60

    def many(self, **options: Any) -> ConsumerWorld:
        made = ConsumerWorld(partitions=self.COUNT, model=ONE_NODE, **options)
        made.start(*range(self.COUNT))
        made.pass_time(A_WHILE_MS)
        return made

    def test_only_those_that_changed_are_looked_at_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked: list[int] = []
        place = Exchange._place

        def counted(self: Exchange, state: PartitionState, now_ms: int) -> int:
            looked.append(state.partition.partition)
            return place(self, state, now_ms)

        made = self.many()
        monkeypatch.setattr(Exchange, "_place", counted)
        made.pass_time(A_WHILE_MS)
        assert looked == [], "nothing happened"
        made.append(7, 2)
        made.fetcher.pause([TopicPartition(TOPIC, 9)])
        made.seek(11, 0)
        made.pass_time(A_WHILE_MS)
        assert set(looked) == {7, 9, 11}
        assert made.state(7).position == 2

    def test_a_request_names_what_changed_and_takes_back_what_is_not_read(self) -> None:
        made = self.many()
        made.append(7, 2)
        made.fetcher.pause([TopicPartition(TOPIC, 9)])
        count = len(fetches(made))
        made.pass_time(A_WHILE_MS)
        later = fetches(made)[count:]
        assert {one.index for request in later for topic in request.topics for one in topic.partitions} == {7}
        assert [index for request in later for topic in request.forgotten for index in topic.partitions] == [9]

    def test_who_is_assigned_again_is_read_from_its_new_place(self) -> None:
        made = self.many()
        made.append(7, 2)
        made.pass_time(A_WHILE_MS)
        made.assign(8)
        made.assign(7, 8)
        made.seek(7, 1)
        made.pass_time(A_WHILE_MS)
        assert (made.state(7).position, made.state(7).fetch_offset) == (2, 2)
        made.append(7, 2)
        made.pass_time(A_WHILE_MS)
        assert made.state(7).position == 4

    def test_without_sessions_none_is_always_the_first(self) -> None:
        made = ConsumerWorld(partitions=3, model={**ONE_NODE, "has_sessions": False}, fetch_max_bytes=60)
        for index in range(3):
            for _ in range(6):
                made.append(index, 2)
        made.start(*range(3))
        firsts = set()
        for _ in range(200):
            made.pass_time(5)
            firsts |= {request.topics[0].partitions[0].index for request in fetches(made) if request.topics}
        assert firsts == {0, 1, 2}
        assert [made.state(index).position for index in range(3)] == [12, 12, 12]


class TestErrors:
    @pytest.mark.parametrize("code", [-1, 3, 5, 6, 9, 56, 74, 75, 78, 100, 103])
    def test_what_passes_is_tried_again_in_silence(self, code: int) -> None:
        made = caught_up()
        made.log(0).errors += [code] * 3
        goes_on(made)
        assert made.errors == []

    @pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103])
    def test_metadata_is_asked_for_where_somebody_else_may_lead(self, code: int) -> None:
        made = caught_up()
        count = len(made.cluster.asked(ApiKey.METADATA))
        made.log(0).errors.append(code)
        made.pass_time(100)
        assert len(made.cluster.asked(ApiKey.METADATA)) > count

    def test_pauses_between_attempts_grow(self) -> None:
        made = caught_up()
        made.log(0).errors += [-1] * 100
        count = len(fetches(made))
        made.pass_time(1_000)
        assert 8 <= len(fetches(made)) - count <= 14  # 20, 40, 80, then 100 ms each

    def test_what_the_brokers_side_must_mend_is_told_once_and_tried_on(self) -> None:
        made = caught_up()
        made.log(0).errors += [29] * 5
        made.pass_time(A_WHILE_MS)
        assert [type(told) for told in made.errors] == [TopicAuthorizationFailed]
        assert str(FIRST) in str(made.errors[0])
        goes_on(made)
        made.log(0).errors.append(29)
        made.pass_time(A_WHILE_MS)
        assert len(made.errors) == 2

    @pytest.mark.parametrize("code", [2, 29])
    def test_what_lies_in_front_of_a_trouble_is_read_first(self, code: int) -> None:
        made = world()
        made.start(0)
        made.pass_time(A_WHILE_MS, reading=False)
        assert made.inbox, "all that is good waits for its reader"
        made.log(0).errors += [code] * 1_000
        made.pass_time(A_WHILE_MS, reading=False)
        assert made.errors == []
        for _ in range(3):
            assert len(made.read(2)) == 2
            assert made.errors == [], "it is told when the reader wants more"
        assert made.read() == []
        assert len(made.errors) == 1

    def test_damage_is_told_once_for_each_poll_and_the_position_stays(self) -> None:
        made = caught_up()
        made.log(0).errors += [2] * 1_000
        made.pass_time(A_WHILE_MS, reading=False)
        for count in range(1, 5):
            assert len(made.errors) == count, "however often the broker says so meanwhile"
            assert made.read() == []
            made.pass_time(A_WHILE_MS, reading=False)
        assert made.state(0).position == 6
        told = str(made.errors[0])
        assert told.startswith(f"{FIRST} at offset 6: the broker's log is damaged there; `oncelog doctor DIR --deep`")
        assert ".." not in told
        assert "may be sent again" not in told
        assert {str(error) for error in made.errors} == {told}

    def test_damage_is_not_told_of_where_nobody_reads_any_more(self) -> None:
        made = world()
        made.start(0)
        made.pass_time(A_WHILE_MS, reading=False)
        made.log(0).errors += [2]
        made.pass_time(A_WHILE_MS, reading=False)
        made.seek(0, 2)
        made.pass_time(A_WHILE_MS)
        assert made.errors == []
        goes_on(made)

    def test_an_answer_without_a_whole_batch_is_no_progress(self) -> None:
        made = caught_up()
        made.append(0)
        batch = made.log(0).batches[-1]
        made.log(0).batches[-1] = batch._replace(data=batch.data[:70])
        made.pass_time(A_WHILE_MS)
        assert {type(told) for told in made.errors} == {CorruptMessage}
        assert made.state(0).position == 6

    def test_an_answer_from_before_the_position_is_no_progress(self) -> None:
        made = caught_up()
        made.append(0)
        made.log(0).batches[-1] = made.log(0).batches[-1]._replace(data=made.log(0).batches[0].data)
        made.pass_time(A_WHILE_MS)
        assert {type(told) for told in made.errors} == {CorruptMessage}
        assert made.state(0).position == 6

    @pytest.mark.parametrize("base_offset", [2**63 - 1, -(2**63)])
    def test_a_batch_beyond_all_offsets_is_no_progress(self, base_offset: int) -> None:
        made = caught_up()
        made.append(0)
        batch = made.log(0).batches[-1]
        made.log(0).batches[-1] = batch._replace(data=base_offset.to_bytes(8, signed=True) + bytes(batch.data[8:]))
        made.pass_time(A_WHILE_MS)
        assert {type(told) for told in made.errors} == {CorruptMessage}
        assert made.state(0).position == 6
        made.log(0).batches[-1] = batch
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 7, "the consumer goes on when the broker does"

    def test_what_goes_on_for_long_is_warned_of_now_and_then(self, caplog: pytest.LogCaptureFixture) -> None:
        made = caught_up()
        made.log(0).errors += [-1] * 1_000
        made.pass_time(15_000)
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 2, "every ten seconds"
        assert f"{FIRST} cannot be read at offset 6 after 5 attempts" in warned[0]
        assert "more like this since the last warning" in warned[1]

    @pytest.mark.parametrize("has_hint", [True, False])
    def test_leaders_that_name_each_other_are_not_asked_without_a_pause(
        self, has_hint: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = caught_up()
        read = ReadCluster._fetch_one

        epochs = itertools.count(1_000)

        def elsewhere(self: ReadCluster, node_id: int, *arguments: Any, **options: Any) -> Any:
            answer = read(self, node_id, *arguments, **options)
            other = next(one for one in self.nodes if one != node_id)
            leader = CurrentLeader(other, next(epochs)) if has_hint else None
            return answer._replace(error_code=6, records=None, current_leader=leader)

        count = len(fetches(made))
        with monkeypatch.context() as odd:
            odd.setattr(ReadCluster, "_fetch_one", elsewhere)
            made.pass_time(1_000)
        assert len(fetches(made)) - count <= 16

    def test_replicas_that_send_us_on_are_not_asked_without_a_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = caught_up()
        read = ReadCluster._fetch_one

        def sent_on(self: ReadCluster, node_id: int, *arguments: Any, **options: Any) -> Any:
            answer = read(self, node_id, *arguments, **options)
            other = next(one for one in self.nodes if one != node_id)
            return answer._replace(error_code=0, records=None, preferred_read_replica=other)

        count = len(fetches(made))
        with monkeypatch.context() as odd:
            odd.setattr(ReadCluster, "_fetch_one", sent_on)
            made.pass_time(1_000)
        assert len(fetches(made)) - count <= 32, "the leader and the follower, ten times a second"
        goes_on(made)

    def test_a_broker_that_talks_rubbish_is_asked_again(self) -> None:
        made = caught_up()
        made.append(0)
        for _ in range(3):
            made.serve(0)
            made.garble(0)
            made.pass_time(30, healthy=False)
        goes_on(made)


class TestOutOfRange:
    def test_the_policy_decides(self) -> None:
        made = caught_up()
        made.append(0)
        made.log(0).delete_oldest(4)
        made.seek(0, 2)
        made.append(0)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].start == 7
        assert made.state(0).position == 8
        assert made.errors == []

    @pytest.mark.parametrize("code", [OffsetOutOfRange.code])
    def test_a_broker_that_says_so_of_every_position_is_not_asked_without_a_pause(
        self, code: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = caught_up()
        made.log(0).errors += [code] * 10_000
        count = len(fetches(made))
        made.pass_time(1_000)
        assert 5 <= len(fetches(made)) - count <= 16
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 1
        assert "is outside the log, as the broker says for the 2. time in a row" in warned[0]
        made.log(0).errors.clear()
        made.pass_time(A_WHILE_MS)
        goes_on(made)

    def test_a_log_that_is_said_to_diverge_time_and_again_is_not_asked_without_a_pause(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = caught_up()
        read = ReadCluster._fetch_one

        def diverging(self: ReadCluster, *arguments: Any, **options: Any) -> Any:
            return read(self, *arguments, **options)._replace(
                error_code=0, records=None, diverging_epoch=EpochEndOffset(0, 2)
            )

        count = len(fetches(made))
        with monkeypatch.context() as odd:
            odd.setattr(ReadCluster, "_fetch_one", diverging)
            made.pass_time(1_000)
        assert len(fetches(made)) - count <= 16

    def test_without_one_the_user_does(self) -> None:
        made = caught_up(auto_offset_reset="none")
        made.seek(0, 1_000)
        made.pass_time(1_000)
        (error,) = made.errors
        assert isinstance(error, PositionOutOfRange)
        assert error.positions == {FIRST: 1_000}
        assert made.state(0).stage is Stage.HELD
        made.seek(0, 6)
        goes_on(made)

    def test_what_was_fetched_before_is_read_first(self) -> None:
        made = world(40)
        made.start(0)
        made.pass_time(40, reading=False)
        fetched_to = made.state(0).fetch_offset
        made.log(0).errors.append(1)
        made.read(1)  # makes room for the fetch that fails
        made.log(0).delete_oldest(30)
        made.pass_time(40, reading=False)
        assert made.state(0).stage is Stage.LEAVING
        read = made.read()
        assert read[-1][1] >= fetched_to - 1
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].start == 60


class TestResets:
    def test_earliest_and_latest(self) -> None:
        made = world()
        made.log(0).delete_oldest(1)
        made.assign(0)
        made.reset(0, EARLIEST)
        made.pass_time(10, reading=False)
        assert made.state(0).position == 2
        made.reset(0, LATEST)
        made.pass_time(100, reading=False)
        assert made.state(0).position == 6

    def test_the_policy_latest(self) -> None:
        made = world(auto_offset_reset="latest")
        made.start(0)
        made.pass_time(10)
        assert made.state(0).position == 6

    def test_a_while_ago(self) -> None:
        made = world(auto_offset_reset="by_duration:PT1S")
        made.core.wall_ms = TIMESTAMP_MS + 1_003
        made.start(0)
        made.pass_time(10, reading=False)
        assert made.state(0).position == 3

    def test_a_time_after_the_last_record_is_the_end(self) -> None:
        made = world()
        made.assign(0)
        made.reset(0, TIMESTAMP_MS + 1_000)
        made.pass_time(10)
        assert made.state(0).position == 6

    def test_without_a_policy_the_user_hears_of_it_once(self) -> None:
        made = world(auto_offset_reset="none")
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert [type(error) for error in made.errors] == [NoOffsetForPartition]
        assert made.fetcher.unpositioned() == []
        made.reset(0, EARLIEST)
        goes_on(made)

    @pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
    def test_leaders_that_cannot_tell_are_asked_again(self, code: int) -> None:
        made = world()
        made.cluster.refusals[ApiKey.LIST_OFFSETS] += [code] * 3
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 6
        assert made.errors == []

    def test_a_leader_that_knows_no_end_is_not_asked_without_a_pause(self) -> None:
        made = world()
        made.cluster.refusals[ApiKey.LIST_OFFSETS] += [43] * 10_000  # it cannot look for times
        made.assign(0)
        made.reset(0, LATEST)
        made.pass_time(1_000)
        assert len(made.cluster.asked(ApiKey.LIST_OFFSETS)) <= 16
        made.cluster.refusals[ApiKey.LIST_OFFSETS].clear()
        goes_on(made)

    def test_who_may_not_know_is_told_so_once(self) -> None:
        made = world()
        made.cluster.refusals[ApiKey.LIST_OFFSETS] += [29] * 3
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert [type(error) for error in made.errors] == [TopicAuthorizationFailed]
        assert made.state(0).position == 6

    def test_a_seek_overtakes_a_reset(self) -> None:
        made = world()
        made.start(0)
        made.seek(0, 4)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].start == 4

    def test_new_partitions_wait_for_a_position(self) -> None:
        made = world()
        made.assign(0)
        made.pass_time(A_WHILE_MS)
        assert [state.partition for state in made.fetcher.unpositioned()] == [FIRST]
        assert fetches(made) == []


class TestLeaders:
    def test_a_hint_is_followed_before_metadata_comes(self) -> None:
        made = caught_up()
        made.log(0).change_leader(2)  # and metadata names the old one
        made.append(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 7
        assert made.state(0).leader == 2

    def test_without_hints_metadata_says(self) -> None:
        made = caught_up(model={"leader_hints": False})
        made.log(0).change_leader(2)
        made.append(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 6
        made.cluster.publish()
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 7

    def test_metadata_that_lags_behind_is_not_believed(self) -> None:
        made = caught_up()
        made.log(0).change_leader(2)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).leader_epoch == 1
        count = len(made.cluster.requests)
        made.core.metadata.mark_stale()
        made.pass_time(A_WHILE_MS)
        later = made.cluster.requests[count:]
        assert ApiKey.METADATA in {key for _, key, _ in later}
        assert {node for node, key, _ in later if key == ApiKey.FETCH} == {2}

    def test_a_lost_connection_loses_nothing(self) -> None:
        made = world(40)
        made.start(0)
        for _ in range(5):
            made.pass_time(11)
            made.cut(0)
        goes_on(made)
        assert made.readings[FIRST].values == made.log(0).values(0)

    def test_a_partition_without_a_leader_is_waited_for(self) -> None:
        made = caught_up()
        made.stop_node(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).leader == -1
        goes_on(made)


class TestTruncation:
    def truncated(self, **options: Any) -> ConsumerWorld:
        """What was read last is gone, and something else is there."""
        made = caught_up(**options)
        made.log(0).change_leader(1, lost_batches=2)
        made.cluster.publish()
        for _ in range(4):
            made.append(0, 2)
        made.pass_time(1_500)
        return made

    def test_with_a_policy_reading_goes_on_where_the_logs_part(self) -> None:
        made = self.truncated()
        assert made.readings[FIRST].start == 2
        assert made.readings[FIRST].values == made.log(0).values(2)
        assert made.errors == []

    def test_without_one_the_user_is_told_where_that_is(self) -> None:
        made = self.truncated(auto_offset_reset="none")
        (error,) = made.errors
        assert isinstance(error, LogTruncated)
        assert error.positions == {FIRST: 6}
        assert error.divergent == {FIRST: OffsetAndMetadata(2, "", 0)}

    def test_a_clean_change_of_leader_is_noticed_and_changes_nothing(self) -> None:
        made = caught_up()
        made.log(0).change_leader(1)
        goes_on(made)
        assert len(made.cluster.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 1
        assert made.readings[FIRST].start == 0

    def test_who_wrote_the_last_batch_is_not_asked(self) -> None:
        made = caught_up()
        made.seek(0, 4, leader_epoch=0)
        goes_on(made)
        assert made.cluster.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []

    def test_who_has_just_told_where_to_begin_is_not_asked(self) -> None:
        made = world()
        made.log(0).change_leader(1)
        made.cluster.publish()
        made.start(0)
        goes_on(made)
        assert made.cluster.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []

    def test_a_committed_epoch_is_checked(self) -> None:
        made = world(4)
        made.log(0).change_leader(1, lost_batches=2)
        made.cluster.publish()
        made.append(0, 6)
        made.assign(0)
        made.seek(0, 8, leader_epoch=0)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].start == 4

    def test_where_nobody_knows_the_epoch_the_policy_decides(self) -> None:
        made = caught_up(auto_offset_reset="latest")
        made.log(0).change_leader(1)
        made.log(0).epochs = []
        made.cluster.publish()
        made.append(0, 2)
        made.pass_time(1_500)
        assert made.readings[FIRST].start == 8

    @pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
    def test_leaders_that_cannot_tell_are_asked_again(self, code: int) -> None:
        made = caught_up()
        made.cluster.refusals[ApiKey.OFFSET_FOR_LEADER_EPOCH] += [code] * 3
        made.log(0).change_leader(1)
        goes_on(made)
        assert made.errors == []

    def test_who_may_not_know_is_told_so_once(self) -> None:
        made = caught_up()
        made.cluster.refusals[ApiKey.OFFSET_FOR_LEADER_EPOCH] += [29] * 3
        made.log(0).change_leader(1)
        goes_on(made)
        assert [type(error) for error in made.errors] == [TopicAuthorizationFailed]

    def test_brokers_that_know_no_epochs_are_trusted(self) -> None:
        versions = {key: one for key, one in VERSIONS.items() if key != ApiKey.OFFSET_FOR_LEADER_EPOCH}
        made = caught_up(model={"versions": versions})
        made.log(0).change_leader(1)
        goes_on(made)

    def test_a_fetch_may_tell_of_it_as_well(self) -> None:
        made = caught_up()
        made.log(0).diverging = EpochEndOffset(0, 2)
        made.append(0, 2)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].start == 2


class TestTopics:
    def test_a_topic_that_is_deleted_is_said_once(self) -> None:
        made = caught_up()
        made.cluster.delete(TOPIC)
        made.pass_time(3_000)
        assert [type(error) for error in made.errors] == [UnknownTopicOrPartition]
        assert "deleted" in str(made.errors[0])

    def test_one_that_does_not_exist_yet_is_waited_for(self) -> None:
        made = world(0)
        made.cluster.delete(TOPIC)
        made.start(0)
        made.pass_time(3_000)
        made.cluster.create(TOPIC, 1)
        goes_on(made)
        assert made.errors == []

    def recreated(self, **options: Any) -> ConsumerWorld:
        made = caught_up(**options)
        made.cluster.delete(TOPIC)
        made.cluster.create(TOPIC, 1)
        for _ in range(5):
            made.append(0, 2)
        made.pass_time(1_500)
        return made

    def test_another_topic_of_the_same_name_is_read_by_the_policy(self) -> None:
        made = self.recreated()
        assert made.readings[FIRST].start == 0
        assert made.readings[FIRST].values == made.log(0).values(0)
        assert made.errors == []

    def test_without_a_policy_the_user_decides(self) -> None:
        made = self.recreated(auto_offset_reset="none")
        assert [type(error) for error in made.errors] == [UnknownTopicId]
        made.seek(0, 0)
        goes_on(made)

    def test_the_newer_topic_may_have_the_lower_epoch(self) -> None:
        made = caught_up()
        made.log(0).change_leader(1)
        made.pass_time(A_WHILE_MS)
        made.cluster.delete(TOPIC)
        made.cluster.create(TOPIC, 1)
        made.append(0, 2)
        made.pass_time(1_500)
        assert made.state(0).position == 2


class TestSessions:
    def test_only_changes_are_said(self) -> None:
        made = ConsumerWorld(model=ONE_NODE)
        made.start(0, 1, 2)
        made.pass_time(A_WHILE_MS)
        made.append(1)
        made.pass_time(100)
        full, *rest = fetches(made)
        assert full.session_epoch == 0
        changes = [[one.index for topic in request.topics for one in topic.partitions] for request in rest]
        assert [indexes for indexes in changes if indexes] == [[1]]

    def test_what_is_paused_is_taken_back(self) -> None:
        made = ConsumerWorld(model=ONE_NODE)
        made.start(0, 1, 2)
        made.pass_time(A_WHILE_MS)
        made.pause(1)
        made.pass_time(A_WHILE_MS)
        forgotten = [list(topic.partitions) for request in fetches(made) for topic in request.forgotten]
        assert forgotten == [[1]]

    @pytest.mark.parametrize("code", [70, 71, 106])
    def test_a_session_that_the_broker_lost_begins_anew_at_once(self, code: int) -> None:
        made = caught_up()
        made.cluster.refusals[ApiKey.FETCH].append(code)
        count = len(fetches(made))
        made.append(0)
        made.pass_time(0)
        assert [request.session_epoch == 0 for request in fetches(made)[count:]][:2] == [False, True]
        assert made.state(0).position == 7

    def test_a_broker_that_refuses_every_session_is_not_asked_in_haste(self) -> None:
        made = caught_up()
        made.cluster.refusals[ApiKey.FETCH] += [70] * 100
        count = len(fetches(made))
        made.pass_time(1_000)
        assert len(fetches(made)) - count < 20
        made.heal()
        goes_on(made)

    def test_brokers_without_sessions(self) -> None:
        made = ConsumerWorld(model={"has_sessions": False})
        made.append(0, 2)
        made.start(0, 1, 2)
        made.pass_time(A_WHILE_MS)
        assert {request.session_epoch for request in fetches(made)} == {0}
        made.finish()


class TestPausing:
    def test_what_is_paused_is_not_fetched_and_its_data_waits(self) -> None:
        made = world(20)
        made.start(0)
        made.pass_time(40, reading=False)
        made.pause(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 0
        assert made.inbox.buffered_bytes > 0
        count = len(fetches(made))
        made.pass_time(A_WHILE_MS)
        assert len(fetches(made)) == count
        made.resume(0)
        made.pass_time(A_WHILE_MS)
        assert made.readings[FIRST].values == made.log(0).values(0)
        assert made.readings[FIRST].seek_count == 2  # nothing had to be fetched twice

    def test_others_pass_it(self) -> None:
        made = ConsumerWorld(partitions=2, model=ONE_NODE)
        for _ in range(20):
            made.append(0, 2)
            made.append(1, 2)
        made.start(0, 1)
        made.pass_time(40, reading=False)
        made.pause(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(1).position == 40

    def test_it_makes_room_and_is_fetched_again(self) -> None:
        made = ConsumerWorld(partitions=8, model=ONE_NODE)
        for index in range(8):
            for _ in range(20):
                made.append(index, 2)
        made.start(*range(8))
        made.pass_time(A_WHILE_MS, reading=False)
        for index in range(7):
            made.pause(index)
        made.pass_time(A_WHILE_MS)
        assert made.state(7).position == 40
        assert made.inbox.buffered_bytes <= made.inbox.max_bytes // 2
        made.finish()


class TestRevoking:
    def test_what_comes_for_a_partition_that_was_given_up_is_thrown_away(self) -> None:
        made = world(20)
        made.start(0)
        made.pass_time(40, reading=False)
        assert made.inbox
        made.assign()
        made.pass_time(A_WHILE_MS)
        assert made.read() == []
        assert made.inbox.buffered_bytes == 0

    def test_a_partition_that_comes_back_begins_anew(self) -> None:
        made = caught_up()
        made.assign()
        made.assign(0)
        assert made.state(0).position is None
        assert made.state(0).stage is Stage.UNPOSITIONED

    def test_what_stays_is_not_touched(self) -> None:
        made = caught_up()
        state = made.state(0)
        made.fetcher.assign([FIRST, TopicPartition(TOPIC, 1)])
        assert made.state(0) is state

    def test_orders_for_partitions_of_others_are_ignored(self) -> None:
        made = world()
        made.seek(0, 3)
        made.reset(0)
        made.pause(0)
        made.resume(0)
        assert made.fetcher.states == {}


class TestQuestions:
    def ask(self, made: ConsumerWorld, specs: dict[TopicPartition, int]) -> list[Any]:
        answers: list[Any] = []
        made.fetcher.list_offsets(specs, answers.append)
        made.poll()
        return answers

    def test_offsets_of_partitions_that_nobody_reads(self) -> None:
        made = ConsumerWorld()
        made.append(0, 3)
        made.append(1, 5)
        second = TopicPartition(TOPIC, 1)
        answers = self.ask(made, {FIRST: EARLIEST, second: TIMESTAMP_MS + 2})
        made.pass_time(A_WHILE_MS)
        assert answers == [{FIRST: OffsetAndTimestamp(0, -1, 0), second: OffsetAndTimestamp(2, TIMESTAMP_MS + 2, 0)}]

    def test_none_where_every_record_is_older(self) -> None:
        made = world()
        answers = self.ask(made, {FIRST: TIMESTAMP_MS + 50})
        made.pass_time(A_WHILE_MS)
        assert answers == [{FIRST: None}]

    def test_none_where_the_log_has_no_times(self) -> None:
        made = world()
        made.cluster.refusals[ApiKey.LIST_OFFSETS].append(43)
        answers = self.ask(made, {FIRST: TIMESTAMP_MS})
        made.pass_time(A_WHILE_MS)
        assert answers == [{FIRST: None}]

    def test_nothing_asked(self) -> None:
        assert self.ask(world(), {}) == [{}]

    def test_two_questions_for_one_partition(self) -> None:
        made = world()
        begin = self.ask(made, {FIRST: EARLIEST})
        end = self.ask(made, {FIRST: LATEST})
        made.pass_time(A_WHILE_MS)
        assert (begin[0][FIRST].offset, end[0][FIRST].offset) == (0, 6)
        assert made.cluster.complaints == []

    def test_an_error_that_no_retry_mends_ends_it(self) -> None:
        made = ConsumerWorld()
        made.cluster.refusals[ApiKey.LIST_OFFSETS].append(29)
        answers = self.ask(made, {TopicPartition(TOPIC, index): LATEST for index in range(3)})
        made.pass_time(A_WHILE_MS)
        assert [type(answer) for answer in answers] == [TopicAuthorizationFailed]
        assert made.errors == []

    def test_what_does_not_exist_is_asked_for_until_nobody_waits(self) -> None:
        made = ConsumerWorld()
        answers: list[Any] = []
        survey = made.fetcher.list_offsets({TopicPartition("other", 0): LATEST}, answers.append)
        made.pass_time(made.config.retry_backoff_ms)
        survey.cancel()
        made.cluster.create("other", 1)
        made.pass_time(A_WHILE_MS)
        assert answers == []

    def test_a_topic_that_was_created_just_now_is_waited_for(self) -> None:
        made = ConsumerWorld()
        answers = self.ask(made, {TopicPartition("other", 0): LATEST})
        made.pass_time(3 * made.config.retry_backoff_ms)
        made.cluster.create("other", 1)
        made.pass_time(A_WHILE_MS)
        assert [type(answer) for answer in answers] == [dict]

    def test_what_brokers_say_time_and_again_that_there_is_not_is_not_waited_for(self) -> None:
        made = ConsumerWorld()
        topic = self.ask(made, {TopicPartition("other", 0): LATEST})
        partition = self.ask(made, {FIRST: LATEST, TopicPartition(TOPIC, 99): LATEST})
        made.pass_time(30 * A_WHILE_MS)
        assert [str(answer) for answer in (*topic, *partition)] == [
            "topic 'other' does not exist: create it, or correct its name",
            f"topic {TOPIC!r} has 3 partitions (0 to 2), and no partition 99",
        ]
        assert {type(answer) for answer in (*topic, *partition)} == {UnknownTopicOrPartition}
        assert made.errors == []

    def test_lost_questions_are_asked_again(self) -> None:
        made = world()
        answers = self.ask(made, {FIRST: LATEST})
        for _ in range(4):
            made.serve(0)
            made.answer(0)
            made.cut(0)
            made.pass_time(60, healthy=False)
        made.pass_time(A_WHILE_MS)
        assert answers[0][FIRST].offset == 6


class TestReadReplicas:
    def test_the_follower_that_the_leader_names_is_read_from(self) -> None:
        made = world()
        made.log(0).read_replica = 2
        made.start(0)
        made.pass_time(A_WHILE_MS)
        assert made.state(0).position == 6
        assert [node for node, _ in made.cluster.asked(ApiKey.FETCH)][:2] == [0, 2]

    def test_after_a_while_the_leader_is_asked_again(self) -> None:
        made = world()
        made.log(0).read_replica = 2
        made.start(0)
        made.pass_time(A_WHILE_MS)
        count = len(made.cluster.requests)
        made.pass_time(made.config.metadata_max_age_ms)
        nodes = [node for node, key, _ in made.cluster.requests[count:] if key == ApiKey.FETCH]
        assert nodes.count(0) == 1

    def test_out_of_range_there_is_for_the_leader_to_say(self) -> None:
        made = world()
        made.log(0).read_replica = 2
        made.start(0)
        made.pass_time(A_WHILE_MS)
        made.log(0).errors.append(1)
        goes_on(made)
        assert made.readings[FIRST].start == 0

    def test_one_that_is_gone_is_not_asked_in_haste(self) -> None:
        made = world()
        made.start(0)
        made.pass_time(A_WHILE_MS)
        made.log(0).read_replica = 2
        made.cluster.stopped.add(2)
        count = len(fetches(made))
        made.pass_time(1_000)
        assert len(fetches(made)) - count < 20
        goes_on(made)


class RacingInbox(Inbox):
    """A reader acts in the very moment before the fetcher says that it waits for one: so nobody is woken."""

    before_waiting: Callable[[], object] | None = None
    _says_so = False

    @property
    def is_awaited(self) -> bool:
        return self._says_so

    @is_awaited.setter
    def is_awaited(self, says_so: bool) -> None:
        act, self.before_waiting = self.before_waiting, None
        if says_so and act is not None:
            act()
        self._says_so = says_so


class TestWaking:
    def racing(self, value_bytes: int = 40, **options: Any) -> tuple[ConsumerWorld, RacingInbox]:
        made = world(0, **options)
        for _ in range(40):
            made.append(0, 2, value_bytes)
        made.inbox.__class__ = RacingInbox
        assert isinstance(made.inbox, RacingInbox)
        made.start(0)
        return made, made.inbox

    @pytest.mark.parametrize("value_bytes", [40, 900])  # either two answers wait, or one that fills the inbox
    def test_a_reader_that_makes_room_just_before_is_noticed(self, value_bytes: int) -> None:
        made, inbox = self.racing(value_bytes, fetch_queue_max_bytes=2_000)
        inbox.before_waiting = made.read
        made.settle_down()
        assert inbox.before_waiting is None
        position = made.state(0).position
        assert position
        assert made.state(0).fetch_offset > position

    def test_a_reader_that_comes_to_the_end_just_before_is_noticed(self) -> None:
        made, inbox = self.racing()
        made.settle_down()
        made.log(0).delete_oldest(30)
        made.read(1)  # makes room for the fetch that fails
        assert made.state(0).stage is Stage.FETCHING
        inbox.before_waiting = made.read
        made.settle_down()
        assert made.state(0).position == 60
