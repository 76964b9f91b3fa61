"""Regular expressions are resolved in bounded parts, each name once; what takes too much is given up and said.

Work is counted, never timed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.coordinator.consumer import group_records, resolving
from oncelog.coordinator.consumer.regex import MAX_NAME_WORK, MAX_STEPS, TopicPattern
from oncelog.coordinator.consumer.resolving import ALLOWED_WORK, MAX_EVALUATION_WORK, Allowance, Resolutions
from oncelog.coordinator.effects import Effects
from oncelog.errors import InvalidRegularExpression
from tests.coordinator.consumer.support import GROUP, Coordinator, FakeTopics, Kip848Client
from tests.coordinator.consumer.test_regex import HEAVY, varied_name

UNENDING = Allowance(10**9)
SLOW = ".*a.{40}"
"""Takes some thousand steps for each name of `varied_name`: no single one is too much."""


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which names are matched against which expressions."""
    found: list[tuple[str, str]] = []
    matches = TopicPattern.matches

    def noted(self: TopicPattern, name: str) -> bool:
        found.append((self._expression, name))
        return matches(self, name)

    monkeypatch.setattr(TopicPattern, "matches", noted)
    return found


# --- one expression ---------------------------------------------------------------------------------------------------


def test_only_new_names_are_matched(matched: list[tuple[str, str]]) -> None:
    resolutions = Resolutions()
    resolutions.look(["a1", "b1"])
    assert resolutions.resolve("a.*", UNENDING)
    resolutions.look(["a1", "b1", "a2"])
    assert resolutions.resolve("a.*", UNENDING)
    assert resolutions.resolve("a.*", UNENDING)
    assert resolutions.topics("a.*") == {"a1", "a2"}
    assert sorted(matched) == [("a.*", "a1"), ("a.*", "a2"), ("a.*", "b1")]


def test_a_name_that_goes_and_comes_back() -> None:
    resolutions = Resolutions()
    for names in (["a1", "a2"], ["a2"], ["a1", "a2"]):
        resolutions.look(names)
        assert resolutions.resolve("a.*", UNENDING)
        assert resolutions.topics("a.*") == set(names)


def test_many_names_are_matched_in_parts() -> None:
    resolutions = Resolutions()
    names = [f"orders-{number}" for number in range(20_000)]
    resolutions.look(names)
    parts = 1
    while not resolutions.resolve("orders-.*", Allowance()):
        parts += 1
    assert parts >= len(names) // ALLOWED_WORK
    assert resolutions.topics("orders-.*") == set(names)


def test_a_part_does_no_more_than_is_allowed_and_one_name_takes() -> None:
    resolutions = Resolutions()
    resolutions.look(varied_name(number) for number in range(8))
    pattern = TopicPattern.of(SLOW)
    is_done = False
    while not is_done:
        before = pattern.work
        is_done = resolutions.resolve(SLOW, Allowance())
        assert pattern.work - before <= ALLOWED_WORK + MAX_NAME_WORK + 2 * MAX_STEPS


def test_what_takes_too_much_for_all_names_is_given_up() -> None:
    resolutions = Resolutions()
    resolutions.look(varied_name(number) for number in range(200))
    before = TopicPattern.of(SLOW).work
    with pytest.raises(InvalidRegularExpression, match="takes too much work"):
        resolutions.resolve(SLOW, UNENDING)
    assert TopicPattern.of(SLOW).work - before <= MAX_EVALUATION_WORK + MAX_NAME_WORK + 2 * MAX_STEPS
    assert resolutions.resolve(SLOW, UNENDING), "nothing is left to do"
    assert resolutions.topics(SLOW) is None
    with pytest.raises(InvalidRegularExpression, match="takes too much work"):
        resolutions.check(SLOW)


def test_however_little_is_allowed_it_goes_on() -> None:
    resolutions = Resolutions()
    resolutions.look(["a1", "a2", "b1"])
    assert [resolutions.resolve("a.*", Allowance(0)) for _ in range(3)] == [False, False, True]
    assert resolutions.topics("a.*") == {"a1", "a2"}


def test_expressions_that_nobody_uses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "FORGET_FROM", 4)
    resolutions = Resolutions()
    resolutions.look(["orders"])
    for number in range(100):
        resolutions.resolve(f"o{number}", UNENDING)
        resolutions.forget_unused(lambda: {"o0"})
        assert len(resolutions._found) <= 4


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics(orders=1)


@pytest.fixture
def coordinator(topics: FakeTopics) -> Coordinator:
    return Coordinator(topics)


def join(coordinator: Coordinator, member_id: str, regex: str, group_id: str = GROUP) -> dict[str, object]:
    return Kip848Client(coordinator, member_id, topics=[], regex=regex).beat(group_id=group_id)


def test_a_heavy_expression_is_refused_with_a_reason() -> None:
    topics = FakeTopics()
    topics.create(varied_name(1), 1)
    coordinator = Coordinator(topics)
    answer = join(coordinator, "a", HEAVY)
    assert answer["error_code"] == InvalidRegularExpression.code
    assert "use fewer repetitions" in str(answer["error_message"])
    assert coordinator.log == []


def test_what_turns_out_to_be_heavy_later_is_refused_with_the_next_heartbeat(
    coordinator: Coordinator, topics: FakeTopics
) -> None:
    a = Kip848Client(coordinator, "a", topics=[], regex=SLOW)
    assert a.beat()["error_code"] == 0
    for number in range(200):
        topics.create(varied_name(number), 1)
    coordinator.topics_changed()
    answer = a.beat()
    assert answer["error_code"] == InvalidRegularExpression.code
    assert "takes too much work" in str(answer["error_message"])


def test_the_same_expression_is_matched_once_for_all_members_and_groups(
    coordinator: Coordinator, matched: list[tuple[str, str]]
) -> None:
    for group_id in ("g1", "g2", "g3"):
        for member_id in ("a", "b"):
            assert join(coordinator, member_id, "ord.*", group_id)["error_code"] == 0
    assert matched == [("ord.*", "orders")]


def test_a_new_topic_is_matched_once_for_each_expression(
    coordinator: Coordinator, topics: FakeTopics, matched: list[tuple[str, str]]
) -> None:
    for number in range(100):
        join(coordinator, "a", f"orders.*{number}", f"g{number % 50}")
    matched.clear()
    topics.create("orders-7", 1)
    coordinator.topics_changed()
    assert len(matched) == 50, "of each group the last expression"
    assert coordinator.group("g7").topics_of(coordinator.group("g7").members["a"]) == frozenset()
    assert {name for _, name in matched} == {"orders-7"}


def test_one_step_after_a_change_of_topics_is_bounded_however_many_groups_there_are(
    coordinator: Coordinator, topics: FakeTopics, matched: list[tuple[str, str]]
) -> None:
    for number in range(300):
        join(coordinator, "a", f"(orders|payments|refunds)-[0-9]+-{number}", f"g{number}")
    topics.create("orders-1-17", 1)
    matched.clear()
    coordinator.perform(coordinator.core.topics_changed(coordinator.now_ms))
    steps = []
    while coordinator.core.next_deadline_ms() == 0:
        coordinator.tick()
        steps.append(len(matched))
        matched.clear()
    assert sum(steps) == 300
    assert max(steps) < 100
    assert coordinator.group("g17").topics == {"orders-1-17"}


def test_what_is_not_resolved_at_once_is_told_with_a_later_heartbeat(
    coordinator: Coordinator, topics: FakeTopics
) -> None:
    for number in range(10_000):
        topics.create(f"orders-{number}", 1)
    a = Kip848Client(coordinator, "a", topics=[], regex="orders-77?")
    assert a.beat()["error_code"] == 0
    assert (a.owned, coordinator.group().regexes) == (set(), {})
    assert coordinator.core.next_deadline_ms() == 0
    coordinator.follow()
    a.beat()
    assert a.owned == topics.places(["orders-7", "orders-77"])


def test_changes_that_come_faster_than_groups_follow_keep_nobody_waiting(
    coordinator: Coordinator, topics: FakeTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        join(coordinator, "a", f".*-{number}", f"g{number}")
    monkeypatch.setattr(resolving.Allowance, "__init__", lambda self: setattr(self, "_left", 300))
    for number in range(60):
        topics.create(f"new-{number}", 1)
        coordinator.perform(coordinator.core.topics_changed(coordinator.now_ms))
        coordinator.tick()
    assert all(coordinator.group(f"g{number}").topics for number in range(1, 20))


def test_a_stored_expression_that_is_too_heavy_does_not_stop_the_start(
    coordinator: Coordinator, topics: FakeTopics, caplog: pytest.LogCaptureFixture
) -> None:
    """Accepted by an earlier version, with what it was found to mean."""
    a = Kip848Client(coordinator, "a", topics=[], regex="ord.*")
    a.beat()
    (member,) = coordinator.group().members.values()
    expression = "(.*a.{245}|" + ".*" * 900 + "zz)"
    resolved = group_records.ResolvedRegex(frozenset({"orders"}), 0)
    coordinator.perform(
        Effects(
            [
                group_records.member_record(GROUP, replace(member, topic_regex=expression)),
                group_records.regex_record(GROUP, expression, resolved),
            ],
            [],
        )
    )
    topics.create(varied_name(1), 1)
    for _ in range(2):
        caplog.clear()
        coordinator.load()
        (told,) = [one for one in caplog.records if one.levelname == "ERROR"]
        assert GROUP in told.getMessage()
        assert coordinator.group().topics == {"orders"}, "what it was found to mean stays"
        answer = a.beat()
        assert answer["error_code"] == InvalidRegularExpression.code
        assert "takes more than 1000 steps" in str(answer["error_message"])
    assert a.beat(subscribed_topic_regex="ord.*")["error_code"] == 0, "another expression, and all is well"


def test_topics_that_come_and_go_leave_nothing_behind() -> None:
    known = Resolutions()
    for number in range(100):
        known.look([f"orders-{number}"])
        known.resolve("orders.*", UNENDING)
    assert known.topics("orders.*") == {"orders-99"}
    assert known._found["orders.*"].matched == {"orders-99"}


def test_a_topic_that_goes_before_it_is_looked_at_is_not_looked_at(matched: list[tuple[str, str]]) -> None:
    known = Resolutions()
    known.look(["orders-1", "orders-2"])
    assert not known.resolve("orders.*", Allowance(1))
    known.look([])
    known.resolve("orders.*", UNENDING)
    assert len(matched) == 1
    assert known._found["orders.*"].matched == set()
