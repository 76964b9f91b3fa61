"""`Selection`: a subscription, or partitions assigned by hand."""

from __future__ import annotations

import pytest

from oncelog.client.consumer_calls.steps import Listener
from oncelog.client.consumer_errors import NotAssigned, SubscriptionConflict
from oncelog.errors import InvalidConfig
from tests.client.consumer_calls.scene import ELSEWHERE, ONE, TWO, Scene


def test_what_does_not_go_together() -> None:
    scene = Scene()
    with pytest.raises(SubscriptionConflict, match="nothing to read"):
        scene.poll()
    scene.run(scene.calls.selection.assign([ONE]))
    with pytest.raises(SubscriptionConflict, match="unsubscribe"):
        scene.run(scene.calls.selection.subscribe(["orders"], Listener()))
    scene.run(scene.calls.selection.unsubscribe())
    scene.subscribed()
    with pytest.raises(SubscriptionConflict, match="unsubscribe"):
        scene.run(scene.calls.selection.assign([ONE]))
    with pytest.raises(InvalidConfig, match=r"set group.id"):
        Scene(group_id=None).subscribed()


def test_what_is_paused_is_not_handed_out_not_even_half_read() -> None:
    scene = Scene().subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 10)
    assert scene.poll(limit=4) == [0, 1, 2, 3]
    scene.run(scene.calls.selection.pause([ONE]))
    assert scene.calls.selection.paused() == {ONE}
    assert scene.poll() == []
    scene.run(scene.calls.selection.resume([ONE]))
    assert scene.calls.selection.paused() == frozenset()
    assert scene.poll() == [4, 5, 6, 7, 8, 9]
    with pytest.raises(NotAssigned):
        scene.run(scene.calls.selection.pause([ELSEWHERE]))
