"""One WARNING for each change of a broker's state, and no flood of them."""

from __future__ import annotations

import pytest

from oncelog.client.metadata import Node
from oncelog.client.network import OVERDUE_MS
from oncelog.client.network_events import LostKind
from oncelog.client.reachability import QUIET_MS
from tests.client.network_scene import Scene

REFUSED = "Connection refused"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return told


def test_a_broker_that_goes_and_comes_back_is_told_of_once_each(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for _ in range(20):
        scene.pause_before_dialing(1)
        scene.lose(scene.dialed[-1].link, REFUSED)
    (told,) = warnings(caplog)
    assert told == (
        "test: broker one:9092 cannot be reached: Connection refused; no other broker is connected; trying again in"
        " 50 ms, then after pauses of up to 1000 ms, until it answers or this client is closed"
    )
    scene.pause_before_dialing(1)
    scene.agree(scene.dialed[-1].link)
    assert warnings(caplog) == ["test: broker one:9092 can be reached again"]


def test_one_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    began_ms = scene.now_ms
    while scene.now_ms < began_ms + 2 * QUIET_MS:
        scene.pause_before_dialing(1)
        scene.lose(scene.dialed[-1].link, REFUSED)
        scene.pause_before_dialing(1)
        scene.agree(scene.dialed[-1].link)
        scene.lose(scene.dialed[-1].link, "closed")
    told = warnings(caplog)
    assert len([one for one in told if "cannot be reached" in one]) == 3
    assert len([one for one in told if "can be reached again" in one]) == 3
    assert "times since the last warning" in told[2]


def test_a_connection_that_breaks_is_no_news_if_the_next_one_holds(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.lose(link)
    scene.pause_before_dialing(1)
    scene.agree(scene.dialed[-1].link)
    assert warnings(caplog) == []


def test_a_broker_that_is_silent_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(request_timeout_ms=5_000)
    scene.connect(1)
    scene.connect(2)
    scene.send(1, "t")
    scene.now_ms += 5_000
    (lost,) = scene.network.tick(scene.now_ms)
    assert lost.kind is LostKind.TIMEOUT  # type: ignore[union-attr]
    (told,) = warnings(caplog)
    assert "broker one:9092 cannot be reached: no answer within 5000 ms; 1 other broker is connected" in told


def test_one_address_is_one_broker_whatever_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.network.reserve(Node(2**31 - 2, "one", 9092))
    for node_id in (1, 2**31 - 2):
        scene.network.connect(node_id, scene.now_ms)
        scene.perform()
        scene.lose(scene.dialed[-1].link, REFUSED)
    assert len(warnings(caplog)) == 1


def test_an_answer_that_is_overdue_is_told_of_long_before_it_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "t")
    due_ms = scene.network.next_deadline_ms(scene.now_ms)
    assert due_ms is not None
    assert due_ms <= scene.now_ms + OVERDUE_MS, "the shell wakes up for it"
    scene.now_ms += OVERDUE_MS
    assert scene.network.tick(scene.now_ms) == []
    assert warnings(caplog) == [
        "test: broker one:9092 has not answered for 5 s; no other broker is connected; waiting for up to 25 s more,"
        " then connecting anew"
    ]
    scene.now_ms += 1_000
    scene.network.tick(scene.now_ms)
    assert warnings(caplog) == [], "once"
    scene.answer(link)
    assert warnings(caplog) == ["test: broker one:9092 answers again"]


def test_what_a_broker_may_keep_is_overdue_later(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.connect(1)
    scene.send(1, "t", held_ms=20_000)
    scene.now_ms += 20_000 + OVERDUE_MS - 1
    assert scene.network.tick(scene.now_ms) == []
    assert warnings(caplog) == []
    assert scene.network.why_silent(scene.now_ms) == "broker one:9092 has not answered for 5.0 s"
    assert scene.network.owes_since_ms(scene.now_ms) == scene.now_ms - OVERDUE_MS + 1
    scene.now_ms += 1
    assert scene.network.tick(scene.now_ms) == []
    assert len(warnings(caplog)) == 1


def test_requests_that_wait_for_earlier_ones_are_not_overdue_while_a_broker_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    scene.send(1, "b")
    scene.now_ms += OVERDUE_MS - 1
    scene.answer(link)
    scene.now_ms += OVERDUE_MS - 1
    scene.network.tick(scene.now_ms)
    assert warnings(caplog) == []
    scene.now_ms += 1
    scene.network.tick(scene.now_ms)
    assert len(warnings(caplog)) == 1


def test_a_broker_that_accepts_connections_and_says_nothing_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    scene.network.opened(scene.dialed[-1].link, scene.now_ms)
    scene.perform()
    scene.now_ms += OVERDUE_MS
    scene.network.tick(scene.now_ms)
    (told,) = warnings(caplog)
    assert "one:9092 has not answered for 5 s" in told


def test_another_connection_to_the_same_address_is_no_other_broker(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.network.reserve(Node(2**31 - 2, "one", 9092))
    for node_id in (1, 2**31 - 2, 2, 3):
        scene.connect(node_id)
    scene.send(1, "t", timeout_ms=1_000)
    scene.now_ms += 1_000
    scene.network.tick(scene.now_ms)
    (told,) = warnings(caplog)
    assert "no answer within 1000 ms; 2 other brokers are connected" in told
