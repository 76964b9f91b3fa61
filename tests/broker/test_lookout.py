"""When the loop stays awake after a request, and that it gives up where this is of no use."""

from __future__ import annotations

from oncelog.broker.lookout import LOOK_S, MAX_FUTILE, Lookout

SOON_S, LATE_S = LOOK_S / 2, LOOK_S * 10


def looks_of(lookout: Lookout, gap_s: float, requests: int) -> int:
    """How many of so many requests, each this long after the one before, found or left the loop awake."""
    now_s, awake = 0.0, 0
    looking = False
    for _ in range(requests):
        now_s += gap_s
        looking = looking and lookout.looks_on(now_s)
        looking = lookout.served(now_s) or looking
        awake += looking
    return awake


def test_the_loop_stays_awake_for_a_client_that_comes_again_at_once() -> None:
    assert looks_of(Lookout(), SOON_S, 1_000) == 1_000


def test_every_request_prolongs_the_look() -> None:
    lookout = Lookout()
    assert lookout.served(0.0)
    assert not lookout.served(SOON_S), "it looks already"
    assert lookout.looks_on(LOOK_S + SOON_S / 2)
    assert not lookout.looks_on(LOOK_S + SOON_S * 1.5)


def test_futile_looks_become_rare() -> None:
    assert looks_of(Lookout(), LATE_S, 10_000) <= MAX_FUTILE + 10_000 / 2**MAX_FUTILE + 1


def test_they_never_cease() -> None:
    lookout = Lookout()
    looks_of(lookout, LATE_S, 100_000)
    assert looks_of(lookout, LATE_S, 2**MAX_FUTILE) >= 1


def test_one_find_restores_the_confidence() -> None:
    lookout = Lookout()
    looks_of(lookout, LATE_S, 10_000)
    soon = looks_of(lookout, SOON_S, 2**MAX_FUTILE + 100)
    assert soon >= 100, "after at most as many requests as are skipped it looks, and finds"
    lookout.looks_on(1e9)
    assert lookout.served(1e9), "nothing is skipped now"
