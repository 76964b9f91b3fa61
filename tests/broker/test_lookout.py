"""When the loop stays awake after a request, and that it gives up where this is of no use."""

from __future__ import annotations

from oncelog.broker.lookout import LOOK_S, MAX_FUTILE, WORTHWHILE, Lookout

GLANCE_S = LOOK_S / 20
SOON_S, LATE_S = LOOK_S / 2, LOOK_S * 10


class Loop:
    """Asks a lookout as the server's loop does, and counts how often it glances in vain."""

    def __init__(self) -> None:
        self.lookout = Lookout()
        self.now_s = 0.0
        self.is_awake = False
        self.glances = 0

    def serve(self, after_s: float) -> bool:
        """A request comes this long after the last one; whether it finds the loop awake."""
        due_s = self.now_s + after_s
        while self.is_awake and self.now_s < due_s:
            self.now_s += GLANCE_S
            self.glances += 1
            self.is_awake = self.lookout.looks_on(self.now_s)
        was_awake, self.now_s = self.is_awake, due_s
        self.is_awake = self.lookout.served(self.now_s) or self.is_awake
        return was_awake

    def serve_many(self, count: int, after_s: float) -> int:
        return sum(self.serve(after_s) for _ in range(count))


def test_a_client_that_comes_again_at_once_finds_the_loop_awake() -> None:
    assert Loop().serve_many(1_000, SOON_S) == 999


def test_every_request_prolongs_the_look() -> None:
    lookout = Lookout()
    assert lookout.served(0.0)
    assert not lookout.served(SOON_S), "it looks already"
    assert lookout.looks_on(LOOK_S + SOON_S / 2)
    assert not lookout.looks_on(LOOK_S + SOON_S * 1.5)


def test_futile_looks_become_rare() -> None:
    loop = Loop()
    loop.serve_many(10_000, LATE_S)
    looks = loop.glances / (LOOK_S / GLANCE_S)
    assert looks <= 1.1 * (MAX_FUTILE + 1 + 10_000 / 2**MAX_FUTILE)


def test_they_never_cease() -> None:
    loop = Loop()
    loop.serve_many(10_000, LATE_S)
    assert not loop.is_awake
    assert any(loop.serve(LATE_S) or loop.is_awake for _ in range(2**MAX_FUTILE))


def test_requests_that_were_there_already_prove_nothing() -> None:
    """A client that sends several at once and then takes its time is not served faster by a loop that waits for it."""
    loop = Loop()
    for _ in range(2_000):
        loop.serve(LATE_S)
        loop.serve_many(5, GLANCE_S / 2)
    assert loop.glances / 12_000 < 1


def test_a_few_finds_do_not_pay_for_the_rest() -> None:
    loop = Loop()
    for _ in range(2_000):
        loop.serve(LATE_S)
        loop.serve_many(WORTHWHILE - 1, SOON_S)
    assert loop.glances / (2_000 * WORTHWHILE) < 1


def test_confidence_returns_with_a_client_that_waits_for_every_answer() -> None:
    loop = Loop()
    loop.serve_many(10_000, LATE_S)
    loop.serve_many(2**MAX_FUTILE, SOON_S)
    assert loop.serve_many(100, SOON_S) == 100
    loop.serve(LATE_S)
    assert loop.is_awake, "after a pause it is tried at once"
