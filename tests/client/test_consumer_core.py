"""`ConsumerCore`: who hears of the group and when, and what is read meanwhile. The member is played by the test."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import CLOSE_PATIENCE_MS, LEAVING_MS, ConsumerCore, Trouble
from oncelog.client.consumer_errors import ConsumerClosed
from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.fetch.inbox import Inbox
from oncelog.client.fetch.lookups import ABSENT_AFTER
from oncelog.client.fetch.partitions import Stage
from oncelog.client.membership.coordinator_link import COURTESY_MS, CoordinatorLink
from oncelog.client.membership.news import Assigned, Failed, Lost, News, Revoking
from oncelog.client.network import Network
from oncelog.client.network_settings import NetworkSettings
from oncelog.errors import GroupAuthorizationFailed, UnknownTopicOrPartition
from oncelog.types import TopicPartition
from tests.client.network_scene import SETTINGS
from tests.client.test_metadata_cache import answer, topic

ONE, TWO, THREE = (TopicPartition("orders", index) for index in range(3))
NOW_MS = 1_000


class PlayedMember:
    """Does what the test says."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.identity = GroupMetadata("billing", 7, "me")
        self.is_gone = False
        self.log: list[str] = []

    def poll(self, now_ms: int) -> int:
        return 1_000

    def take_news(self) -> list[News]:
        news, self.news = self.news, []
        return news

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.log.append(name)


class PlayedCommits:
    """Offsets are asked for, and told when the test says so."""

    absence = None
    is_idle = True

    why_waiting = None

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.are_given_up = False

    def give_up(self) -> None:
        self.are_given_up = True

    def fetch(self, partitions: Any, now_ms: int, done: Any) -> None:
        self.asked.append((sorted(partitions), done))

    def poll(self, now_ms: int) -> int:
        return 1_000


class Scene:
    def __init__(self, **settings: Any) -> None:
        config = ConsumerConfig.of("127.0.0.1:9092", group_id="billing", **settings)
        self.rings = 0
        self.core = ConsumerCore(
            config,
            Network(NetworkSettings(**SETTINGS), lambda: 0.5),
            Inbox(1 << 20, lambda: None),
            jitter=lambda: 0.5,
            new_id=lambda: "id",
            wall_ms=lambda: 0,
            on_news=self._ring,
        )
        self.member = self.core.membership = PlayedMember()
        self.commits = self.core._commits = PlayedCommits()  # type: ignore[assignment]
        self.core.subscribe(["orders"], NOW_MS)

    def _ring(self) -> None:
        self.rings += 1

    def happen(self, *news: News) -> None:
        self.member.news += news
        self.core.poll(NOW_MS)

    def hear(self) -> News:
        """The user takes the next news and acts on it."""
        news: Any = self.core.outbox.popleft()
        self.core.submit(lambda now_ms: self.core.heard(news, now_ms))
        self.core.poll(NOW_MS)
        return news  # type: ignore[no-any-return]

    @property
    def states(self) -> dict[TopicPartition, Stage]:
        return {partition: state.stage for partition, state in self.core.fetcher.states.items()}


def assigned(*partitions: TopicPartition) -> Assigned:
    return Assigned(frozenset(partitions), frozenset(partitions))


def test_what_is_revoked_is_read_until_the_user_heard_it_and_no_longer() -> None:
    scene = Scene()
    scene.happen(assigned(ONE, TWO))
    scene.hear()
    scene.happen(Revoking(frozenset([ONE])))
    assert scene.core.assignment == {ONE, TWO}
    scene.hear()
    assert scene.core.assignment == {TWO}
    assert set(scene.states) == {TWO}, "although the member has not let go of it"
    assert scene.member.log.count("news_done") == 2


def test_what_is_lost_is_not_read_from_then_on() -> None:
    scene = Scene()
    scene.happen(assigned(ONE))
    scene.hear()
    scene.happen(Lost(frozenset([ONE])))
    assert scene.core.assignment == frozenset()
    assert scene.states == {}


def test_what_comes_back_after_a_loss_begins_anew() -> None:
    scene = Scene()
    scene.happen(assigned(ONE))
    scene.hear()
    scene.core.fetcher.seek(ONE, 55)
    scene.happen(Lost(frozenset([ONE])), assigned(ONE))
    assert scene.core.fetcher.states[ONE].position is None


def test_news_wait_for_those_before_them() -> None:
    """What happens while the user acts on something comes afterwards, and the member knows when all was heard."""
    scene = Scene()
    scene.happen(assigned(ONE))
    scene.happen(Lost(frozenset([ONE])), assigned(TWO))
    assert list(scene.core.outbox) == [assigned(ONE)]
    assert scene.core.assignment == {ONE}
    assert "news_done" not in scene.member.log
    scene.hear()
    assert list(scene.core.outbox) == [Lost(frozenset([ONE])), assigned(TWO)]
    scene.hear()
    assert scene.member.log.count("news_done") == 1, "half of it was heard"
    scene.hear()
    assert scene.member.log.count("news_done") == 2


def test_a_revocation_that_was_heard_too_late_takes_nothing_that_came_since() -> None:
    scene = Scene()
    scene.happen(assigned(ONE))
    scene.hear()
    scene.happen(Revoking(frozenset([ONE])))
    scene.happen(assigned(ONE))
    scene.hear()
    assert scene.core.assignment == {ONE}
    scene.hear()
    assert scene.core.assignment == {ONE}


def test_positions_are_looked_for_after_the_callback() -> None:
    """It may seek; what it seeks is not asked for."""
    scene = Scene()
    scene.happen(assigned(ONE, TWO))
    assert scene.commits.asked == []
    scene.core.fetcher.seek(ONE, 5)
    scene.hear()
    ((asked, done),) = scene.commits.asked
    assert asked == [TWO]
    done({TWO: OffsetAndMetadata(9, "", 2)})
    state = scene.core.fetcher.states[TWO]
    assert (state.position, state.position_epoch) == (9, 2)


def test_a_callback_that_asks_for_a_position_gets_it() -> None:
    scene = Scene()
    scene.happen(assigned(ONE, TWO))
    scene.core.need_position(TWO)
    scene.core.poll(NOW_MS)
    assert [asked for asked, _ in scene.commits.asked] == [[TWO]]
    scene.core.poll(NOW_MS)
    assert len(scene.commits.asked) == 1, "once"


def test_a_seek_wins_over_the_committed_offset() -> None:
    scene = Scene()
    scene.happen(assigned(ONE))
    scene.hear()
    scene.core.fetcher.seek(ONE, 3)
    scene.commits.asked[0][1]({ONE: OffsetAndMetadata(9)})
    assert scene.core.fetcher.states[ONE].position == 3


def test_without_a_committed_offset_the_policy_decides() -> None:
    scene = Scene(auto_offset_reset="earliest")
    scene.happen(assigned(ONE))
    scene.hear()
    scene.commits.asked[0][1]({ONE: None})
    assert scene.states == {ONE: Stage.RESETTING}


def test_offsets_that_are_refused_are_told_and_asked_for_again_when_the_user_polls() -> None:
    scene = Scene()
    scene.happen(assigned(ONE))
    scene.hear()
    error = GroupAuthorizationFailed("no")
    scene.commits.asked.pop()[1](error)
    assert list(scene.core.outbox) == [Trouble(error)]
    scene.core.poll(NOW_MS)
    assert scene.commits.asked == []
    scene.core.polls += 1
    scene.core.poll(NOW_MS)
    assert [asked for asked, _ in scene.commits.asked] == [[ONE]]


def test_partitions_that_the_user_assigns_are_looked_for_when_it_polls() -> None:
    """Before that it may seek."""
    scene = Scene(auto_offset_reset="none")
    scene.core.assign([ONE, TWO], NOW_MS)
    scene.core.poll(NOW_MS)
    assert scene.commits.asked == []
    scene.core.fetcher.seek(ONE, 0)
    scene.core.polls += 1
    scene.core.poll(NOW_MS)
    assert [asked for asked, _ in scene.commits.asked] == [[TWO]]
    assert scene.core.identity == GroupMetadata("billing"), "nobody in particular"


@pytest.mark.parametrize("sign", ["poll", "record"])
def test_the_member_knows_that_the_user_is_alive(sign: str) -> None:
    scene = Scene()
    scene.core.poll(NOW_MS)
    assert "user_polled" not in scene.member.log
    if sign == "poll":
        scene.core.polls += 1
    else:
        scene.core.in_hand = object()  # type: ignore[assignment]
    scene.core.poll(NOW_MS)
    scene.core.poll(NOW_MS)
    assert scene.member.log.count("user_polled") == 1


def test_commands_run_in_their_order_before_anything_else() -> None:
    scene = Scene()
    ran: list[int] = []
    for number in range(3):
        scene.core.submit(lambda _, number=number: ran.append(number))  # type: ignore[misc]
    scene.core.poll(NOW_MS)
    assert ran == [0, 1, 2]


def test_the_end_waits_for_the_group_but_not_forever() -> None:
    scene = Scene()
    scene.core.close(NOW_MS + 500)
    assert scene.core.poll(NOW_MS) <= 500
    assert not scene.core.is_finished
    scene.core.poll(NOW_MS + 500)
    assert scene.core.is_finished
    assert isinstance(scene.core.fatal, ConsumerClosed)


def test_the_end_does_not_wait_for_a_coordinator_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """To leave is a courtesy. One that was there just now is given a moment to be there again."""
    scene = Scene()
    monkeypatch.setattr(CoordinatorLink, "is_live", True)
    scene.core.poll(NOW_MS)
    monkeypatch.setattr(CoordinatorLink, "is_live", False)
    scene.core.poll(NOW_MS + 100)
    scene.core.close(NOW_MS + 30_000)
    assert scene.core.poll(NOW_MS + 400) <= COURTESY_MS - 300
    assert not scene.core.is_finished
    scene.core.poll(NOW_MS + 100 + COURTESY_MS)
    assert scene.core.is_finished


def test_the_end_comes_at_once_if_the_coordinator_has_been_away_for_a_while() -> None:
    scene = Scene()
    scene.core.poll(NOW_MS)
    scene.core.close(NOW_MS + 60_000)
    assert scene.core.poll(NOW_MS + 10_000) == 0
    assert scene.core.is_finished


def test_offset_commits_are_worth_waiting_for_until_the_deadline() -> None:
    scene = Scene()
    scene.core.poll(NOW_MS)
    scene.commits.is_idle = False
    scene.core.close(NOW_MS + 60_000)
    scene.core.poll(NOW_MS + 59_999)
    assert not scene.core.is_finished
    assert not scene.commits.are_given_up
    scene.core.poll(NOW_MS + 60_000)
    assert scene.core.is_finished
    assert scene.commits.are_given_up, "who waits for them hears that it was in vain"


def test_the_end_comes_at_once_when_the_group_knows() -> None:
    scene = Scene()
    scene.member.is_gone = True
    scene.core.close(NOW_MS + 500)
    scene.core.poll(NOW_MS)
    assert scene.core.is_finished


def test_a_failure_of_ours_reaches_who_waits() -> None:
    scene = Scene()
    before = scene.core.arrivals
    scene.core.failed(ZeroDivisionError("ours"))
    assert scene.core.arrivals > before
    assert "ours" in str(scene.core.fatal)


def test_a_failed_group_is_told() -> None:
    scene = Scene()
    failed = Failed(GroupAuthorizationFailed("no"))
    scene.happen(failed)
    assert list(scene.core.outbox) == [failed]
    assert scene.rings > 0


class TestTopicsThatDoNotExist:
    @staticmethod
    def told(scene: Scene, *missing: str) -> None:
        """Brokers answer about the topics."""
        scene.core.metadata.topic_errors = dict.fromkeys(missing, UnknownTopicOrPartition.code)
        scene.core._notice_missing()

    def test_are_told_of_once_until_they_exist(self, caplog: pytest.LogCaptureFixture) -> None:
        scene = Scene(client_id="reader")
        for _ in range(3):
            self.told(scene, "orders", "of another client")
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.getMessage().startswith("reader: topic 'orders' does not exist: nothing is read from it until")
        assert "unless allow.auto.create.topics is true" in record.getMessage()
        assert scene.core.missing_topics == {"orders"}
        self.told(scene)
        assert scene.core.missing_topics == frozenset()
        self.told(scene, "orders")
        assert len(caplog.records) == 2

    def test_are_given_the_time_to_be_created_where_that_is_asked_for(self, caplog: pytest.LogCaptureFixture) -> None:
        scene = Scene(allow_auto_create_topics=True)
        self.told(scene, "orders")
        assert caplog.records == []
        self.told(scene, "orders")
        assert len(caplog.records) == 1

    def test_are_not_created_by_asking_for_them(self) -> None:
        for asked, settings in ((False, {}), (True, {"allow_auto_create_topics": True})):
            metadata = Scene(**settings).core.metadata
            metadata.want("orders", NOW_MS)
            assert metadata.question(NOW_MS)["allow_auto_topic_creation"] is asked


class TestAPatternThatMatchesNothing:
    @staticmethod
    def told(scene: Scene, *names: str, asks_all: bool = True) -> None:
        """Brokers answer about these topics."""
        metadata = scene.core.metadata
        metadata.wants_all = asks_all
        metadata.question(NOW_MS)
        scene.core._cluster.metadata.learn(answer(*map(topic, names)), NOW_MS)
        scene.core._notice_no_match()

    def test_is_told_of_once_until_there_is_a_topic(self, caplog: pytest.LogCaptureFixture) -> None:
        scene = Scene(client_id="reader")
        scene.core.subscribe(re.compile("orders-.*"), NOW_MS)
        for _ in range(3):
            self.told(scene, "orders", "__orders-internal")
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        expected = "reader: no topic matches the pattern 'orders-.*': nothing is read until there is one"
        assert record.getMessage() == expected
        assert scene.core.matches_nothing
        self.told(scene, "orders-new")
        assert not scene.core.matches_nothing
        self.told(scene)
        assert len(caplog.records) == 2

    def test_is_not_known_of_before_all_topics_are(self, caplog: pytest.LogCaptureFixture) -> None:
        scene = Scene()
        scene.core.subscribe(re.compile("orders-.*"), NOW_MS)
        self.told(scene, "refunds", asks_all=False)
        assert not scene.core.matches_nothing
        assert caplog.records == []

    def test_is_not_said_of_names(self) -> None:
        scene = Scene()
        self.told(scene)
        assert not scene.core.matches_nothing


def test_a_group_that_does_not_answer_is_left_after_a_courtesy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator is connected, and says nothing: nothing would be lost."""
    scene = Scene()
    monkeypatch.setattr(CoordinatorLink, "is_live", True)
    scene.core.poll(NOW_MS)
    scene.core.close(NOW_MS + 30_000)
    assert scene.core.poll(NOW_MS) <= LEAVING_MS
    assert not scene.core.is_finished
    scene.core.poll(NOW_MS + LEAVING_MS)
    assert scene.core.is_finished


def test_the_courtesy_has_its_time_after_the_last_offset_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr(CoordinatorLink, "is_live", True)
    scene.commits.is_idle = False
    scene.core.close(NOW_MS + 30_000)
    scene.core.poll(NOW_MS + 10_000)
    scene.commits.is_idle = True
    scene.core.poll(NOW_MS + 10_100)
    assert not scene.core.is_finished
    scene.core.poll(NOW_MS + 10_100 + LEAVING_MS)
    assert scene.core.is_finished


def test_a_close_that_waits_for_an_offset_commit_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.commits.is_idle = False
    scene.core.begin_close(NOW_MS + 30_000, NOW_MS)
    assert scene.core.poll(NOW_MS) <= CLOSE_PATIENCE_MS
    assert "close()" not in caplog.text
    for later_ms in (CLOSE_PATIENCE_MS, 2 * CLOSE_PATIENCE_MS):
        scene.core.poll(NOW_MS + later_ms)
    assert caplog.text.count("close() waits for the last offset commit") == 1
    assert "for up to 27 s more" in caplog.text


def test_a_partition_that_its_topic_does_not_have_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    absent = TopicPartition("orders", 99)
    scene.core.assign([absent], NOW_MS)
    metadata = scene.core.metadata
    for times in range(2 * ABSENT_AFTER):
        metadata.want("orders", NOW_MS)
        metadata.question(NOW_MS)
        metadata.learn(answer(topic("orders")), NOW_MS)
        scene.core._absent.learn(metadata.cluster, scene.core.assignment)
        assert bool(scene.core.missing_partitions) is (times + 1 >= ABSENT_AFTER)
    told = "topic 'orders' has 1 partition (0), and no partition 99"
    assert scene.core.missing_partitions == {absent: told}
    assert caplog.text.count(told) == 1
