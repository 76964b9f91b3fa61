"""`ClassicSession`: one request at a time, who we are, and who hears what came of it."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_records import NO_GENERATION
from oncelog.client.membership.classic_session import HASTY_JOINS, ClassicSession, Refused, Setback
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipCounters, MembershipSettings
from oncelog.client.network_events import Answered, Lost, LostKind
from oncelog.errors import CoordinatorLoadInProgress, MemberIdRequired
from oncelog.wire.api import ApiKey

NODE = 1
GOOD = {"error_code": 0, "member_id": "me", "generation_id": 7}
ANSWER_LOST = Lost(None, NODE, "reset", LostKind.CONNECTION)


class PlayedLink:
    """Remembers what was sent, and by whom its answer is heard."""

    is_taken = False

    def __init__(self) -> None:
        self.sent: list[tuple[ApiKey, Any]] = []
        self.hears: list[Any] = []

    def is_ready(self, now_ms: int) -> bool:
        return True

    def wait_ms(self, now_ms: int) -> int:
        return 0

    def send(self, api_key: ApiKey, body: Any, now_ms: int, done: Any, **how: Any) -> None:
        self.sent.append((api_key, body))
        self.hears.append(done)

    def answer(self, number: int, now_ms: int, **body: Any) -> None:
        api_key = self.sent[number][0]
        self.hears[number](Answered(None, NODE, api_key, 5, body, now_ms), now_ms)


class Scene:
    def __init__(self) -> None:
        settings = MembershipSettings("billing", retry_backoff_ms=100, heartbeat_interval_ms=500)
        self.link = PlayedLink()
        self.counters = MembershipCounters()
        self.setbacks: list[Setback] = []
        self.joined: list[Any] = []
        self.session = ClassicSession(
            settings,
            self.link,  # type: ignore[arg-type]
            self.counters,
            settings.new_backoff(lambda: 0.5),
            lambda setback, now_ms: self.setbacks.append(setback),
            lambda error, identity, now_ms: None,
        )

    def join(self, now_ms: int = 0) -> None:
        self.session.join({"range": b""}, None, now_ms, lambda body, now_ms: self.joined.append(body))


def test_while_a_request_is_under_way_nothing_else_is_asked() -> None:
    scene = Scene()
    assert scene.session.may_ask(0)
    scene.join()
    assert not scene.session.may_ask(0)
    assert scene.session.wait_ms(0) == MAX_POLL_MS
    scene.link.answer(0, 10, **GOOD)
    assert scene.session.may_ask(10)
    assert scene.session.identity == ("me", 7)
    assert (scene.joined, scene.counters.joins) == ([GOOD], 1)


def test_a_member_id_is_taken_and_joined_with() -> None:
    scene = Scene()
    scene.join()
    scene.link.answer(0, 10, error_code=MemberIdRequired.code, member_id="me")
    assert (scene.joined, scene.setbacks) == ([], [])
    scene.join(10)
    assert scene.link.sent[1][1]["member_id"] == "me"


@pytest.mark.parametrize(("first", "second"), [("me", "me"), ("me", "another"), ("", "me")])
def test_a_member_id_is_taken_once(first: str, second: str) -> None:
    scene = Scene()
    scene.join()
    scene.link.answer(0, 10, error_code=MemberIdRequired.code, member_id=first)
    scene.join(10)
    scene.link.answer(1, 20, error_code=MemberIdRequired.code, member_id=second)
    assert len(scene.setbacks) == 1, "a coordinator that is never content is a setback, which has a pause"


def test_what_asks_to_join_at_once_is_obeyed_a_few_times() -> None:
    scene = Scene()
    pauses = []
    for _ in range(HASTY_JOINS + 2):
        scene.session.pause_if_again(0)
        pauses.append(scene.session.wait_ms(0))
    assert pauses == [0] * HASTY_JOINS + [100, 200]


def test_setbacks_are_the_members_to_judge() -> None:
    scene = Scene()
    scene.join()
    scene.link.answer(0, 10, error_code=CoordinatorLoadInProgress.code)
    scene.join(10)
    scene.link.hears[1](ANSWER_LOST, 20)
    refused, lost = scene.setbacks
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, CoordinatorLoadInProgress)
    assert refused.api_key is ApiKey.JOIN_GROUP
    assert lost is ANSWER_LOST
    assert scene.session.generation_id == NO_GENERATION


def test_pauses_grow_until_we_are_in() -> None:
    scene = Scene()
    scene.session.pause(0)
    first_ms = scene.session.wait_ms(0)
    scene.session.pause(0)
    assert scene.session.wait_ms(0) > first_ms
    scene.join()
    scene.link.answer(0, 0, **GOOD)
    scene.session.pause(0)
    assert scene.session.wait_ms(0) == first_ms


def test_a_pause_ends() -> None:
    scene = Scene()
    scene.session.pause(1_000)
    wait_ms = scene.session.wait_ms(1_000)
    assert wait_ms > 0
    assert not scene.session.may_ask(1_000 + wait_ms - 1)
    assert scene.session.may_ask(1_000 + wait_ms)


def test_answers_to_what_was_asked_before_are_not_heard() -> None:
    scene = Scene()
    scene.join()
    scene.session.turn_away(5)
    assert scene.session.may_ask(5)
    left: list[bool] = []
    scene.session.leave("enough", 5, lambda: left.append(True))
    scene.link.answer(0, 10, **GOOD)
    assert (scene.joined, left) == ([], [])
    assert not scene.session.may_ask(10), "the last request is still under way"
    scene.link.hears[1](ANSWER_LOST, 20)
    assert left == [True], "whatever the answer is"


def test_there_are_heartbeats_while_there_is_a_generation() -> None:
    scene = Scene()
    assert scene.session.beat(1_000) == MAX_POLL_MS
    scene.join(1_000)
    scene.link.answer(0, 1_000, **GOOD)
    assert scene.session.beat(1_000) == 500
    scene.session.beat(1_500)
    assert [api_key for api_key, _ in scene.link.sent] == [ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT]
    scene.session.forget_place(keep_member_id=True)
    assert scene.session.identity == ("me", NO_GENERATION)
    assert scene.session.beat(9_000) == MAX_POLL_MS
    scene.session.forget_place(keep_member_id=False)
    assert scene.session.identity == ("", NO_GENERATION)
