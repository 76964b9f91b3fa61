"""A signal's handler may raise between any two lines of `send()`. What it interrupts is accepted whole or not at all,
and everything after it is as if there had been no signal: nothing twice, nothing lost, all in order."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from oncelog.client.spool.feeding import Feeder
from oncelog.client.spool.spool import Spool
from oncelog.client.spool.transaction_feeding import TransactionFeeder
from tests.client.spool.driver import DIRECTORY, NOW_MS
from tests.client.spool.test_feeding import TOPIC, Scene

WHERE = ("/oncelog/client/spool/", "/tests/support/faulty_storage")


class Signal(BaseException):
    """As KeyboardInterrupt."""


def is_entry_or_exit(frame: FrameType) -> bool:
    """Of a lock: the interpreter looks for signals after calls in the block, not between it and its lock."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith("with ")


def interrupted_at(point: int, step: Callable[[], object]) -> bool:
    """Whether the step was interrupted, at the line with this number of those that it comes to."""
    left = point

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if not any(part in frame.f_code.co_filename for part in WHERE):
            return None
        if event == "line" and not is_entry_or_exit(frame):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Signal
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    except Signal:
        return True
    finally:
        sys.settrace(before)
    return False


class SignalScene(Scene):
    def __init__(self, kind: type[Feeder], *, loads_at_once: bool, earlier: int, **settings: int) -> None:
        self.kind = kind
        super().__init__(loads_at_once=loads_at_once, **settings)
        if kind is TransactionFeeder:
            self.feeder = TransactionFeeder(
                self.spool,
                self.accumulator,
                lock=self.feeder.lock,
                new_waiter=self.feeder._new_waiter,
                wall_clock_ms=lambda: NOW_MS,
                loads_at_once=loads_at_once,
            )
            self.feeder.is_flowing = True
        for number in range(earlier):
            self.send(b"early %d" % number)

    def in_memory(self) -> list[bytes]:
        batches = list(self.accumulator.incomplete)
        values: list[bytes] = []
        for batch in batches:
            values += [record.value or b"" for record in decoded(batch)]
        return values

    def on_disk(self) -> list[bytes]:
        spool, recovery = Spool.open(self.storage.after_kill(), DIRECTORY, self.spool_config)
        assert not recovery.damages
        assert not recovery.lost
        values = []
        while (record := spool.peek()) is not None:
            values.append(record.value or b"")
            spool.took(record.topic, record.partition)
        return values


def decoded(batch: Any) -> list[Any]:
    from oncelog.records.batch import decode_records

    return decode_records(bytes(batch.sealed(0, None)))


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("loads_at_once", [True, False])
@pytest.mark.parametrize("kind", [Feeder, TransactionFeeder])
def test_a_signal_at_any_point_harms_no_other_record(kind: type[Feeder], loads_at_once: bool, earlier: int) -> None:
    first, after = [b"early %d" % number for number in range(earlier)], [b"after 1", b"after 2"]
    whole = set()
    for point in range(1, 1000):
        scene = SignalScene(kind, loads_at_once=loads_at_once, earlier=earlier)
        if not interrupted_at(point, lambda scene=scene: scene.send(b"interrupted" + b"." * 40)):  # type: ignore[misc]
            break
        for value in after:
            scene.send(value)
        on_disk = scene.on_disk()
        assert on_disk in ([*first, *after], [*first, b"interrupted" + b"." * 40, *after]), point
        whole.add(len(on_disk) > len(first) + len(after))
        if not loads_at_once and (request := scene.spool.sync_request()):
            request.run()
            scene.spool.synced(request)
        while scene.feeder.feed(0):
            pass
        assert scene.in_memory() == on_disk, point
        assert scene.spool.waiting == 0, point
        for batch in scene.accumulator.incomplete:
            known = scene.feeder._entries if kind is Feeder else scene.feeder._firsts  # type: ignore[attr-defined]
            assert batch.delivery in known, point
    else:
        pytest.fail("it goes on and on")
    assert whole == {True, False}
    assert TOPIC in scene.accumulator.topics
