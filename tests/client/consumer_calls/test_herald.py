"""`Herald`: what callbacks see, and that the group waits for them and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_core import Trouble
from oncelog.client.membership.news import Assigned, Lost, Revoking
from oncelog.errors import GroupAuthorizationFailed
from tests.client.consumer_calls.scene import ONE, TWO, Scene


def test_callbacks_get_the_consumer_and_the_partitions_in_order() -> None:
    told: list[Any] = []
    scene = Scene()
    scene.subscribed(
        on_assigned=lambda *arguments: told.append(("assigned", *arguments)),
        on_revoked=lambda *arguments: told.append(("revoked", *arguments)),
    )
    scene.core.own(ONE, TWO)
    news = [Assigned(frozenset([ONE, TWO]), frozenset([TWO, ONE])), Revoking(frozenset([ONE])), Lost(frozenset([TWO]))]
    scene.core.tell(*news)
    scene.poll()
    assert told == [
        ("assigned", scene.owner, [ONE, TWO]),
        ("revoked", scene.owner, [ONE]),
        ("revoked", scene.owner, [TWO]),
    ], "without on_lost, on_revoked hears of losses"
    assert scene.core.heard_of == news


def test_nobody_is_told_of_nothing() -> None:
    told: list[Any] = []
    scene = Scene().subscribed(on_assigned=lambda *arguments: told.append(arguments))
    scene.core.tell(Assigned(frozenset(), frozenset()))
    scene.poll()
    assert told == []
    assert len(scene.core.heard_of) == 1, "but the member goes on"


def test_a_revocation_of_what_is_lost_already_is_a_loss() -> None:
    told: list[str] = []
    scene = Scene()
    scene.subscribed(ONE, on_revoked=lambda *_: told.append("revoked"), on_lost=lambda *_: told.append("lost"))
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.has_lost_place = True
    scene.core.tell(Revoking(frozenset([ONE])))
    scene.poll()
    assert told == ["lost"]
    assert scene.core.committed == []


def test_a_callback_that_raises_does_not_hold_up_the_group() -> None:
    scene = Scene().subscribed(ONE, on_revoked=lambda *_: 1 // 0)
    scene.core.tell(Revoking(frozenset([ONE])))
    with pytest.raises(ZeroDivisionError):
        scene.poll()
    assert len(scene.core.heard_of) == 1
    assert scene.poll() == []


def test_in_a_callback_nobody_waits_for_the_group() -> None:
    scene = Scene()

    def on_assigned(*_: object) -> None:
        for call in (scene.calls.reading.poll(0, None), scene.calls.selection.unsubscribe()):
            with pytest.raises(RuntimeError, match="would wait for itself"):
                scene.run(call)

    scene.subscribed(ONE, on_assigned=on_assigned)
    scene.core.tell(Assigned(frozenset([ONE]), frozenset([ONE])))
    scene.poll()
    assert len(scene.core.heard_of) == 1


def test_trouble_is_raised_once_and_before_records() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 3)
    scene.core.tell(Trouble(GroupAuthorizationFailed("no")))
    with pytest.raises(GroupAuthorizationFailed):
        scene.poll()
    assert scene.poll() == [0, 1, 2]
