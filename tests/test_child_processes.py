"""Which processes are ours, and which of them an interruption leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from oncelog.child_processes import children, none_left_by_an_interruption

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells")]


def started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def test_they_are_ours_until_they_are_waited_for() -> None:
    with started() as process:
        assert process.pid in children()
        process.kill()
    assert process.pid not in children()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_none_of_those_that_were_being_started(error: type[BaseException]) -> None:
    with started() as before:
        begun: list[subprocess.Popen[bytes]] = []

        def start_and(error: BaseException) -> None:
            with none_left_by_an_interruption():
                begun.append(started())
                raise error

        with pytest.raises(error):
            start_and(error())
        assert begun[0].wait(60) == -signal.SIGKILL
        assert before.poll() is None
        before.kill()


def test_an_error_leaves_them_to_who_handles_it() -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with none_left_by_an_interruption():
            begun.append(started())
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        start()
    with begun[0] as process:
        assert process.poll() is None
        process.kill()
