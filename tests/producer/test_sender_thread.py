"""What a program that ends without closing its producers leaves behind: everything delivered, and soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from oncelog.producer.sender_thread import SenderThread
from tests.producer.scripted_broker import ScriptedBroker
from tests.support.patience import PATIENCE_S

HEAD = """
import oncelog, os, sys
producer = oncelog.Producer("{bootstrap}", linger_ms=60000)
for number in range(100):
    producer.send("orders", b"%d" % number, partition=0)
"""
ENDS = {
    "the end of the script": "",
    "an exit": "sys.exit(3)",
    "an error": "raise KeyError",
    "a forgotten producer": "del producer; import gc; gc.collect()",
    "a thread that still runs": "import threading, time; threading.Thread(target=time.sleep, args=(0.1,)).start()",
    "a child": "pid = os.fork()\nif pid: os.waitpid(pid, 0)",
}


@pytest.mark.parametrize("end", ENDS)
def test_everything_accepted_is_delivered_once(end: str) -> None:
    with ScriptedBroker({"orders": 1}) as scripted:
        script = HEAD.format(bootstrap=scripted.bootstrap) + ENDS[end]
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S, check=False)
        assert scripted.log.get(("orders", 0)) == [b"%d" % number for number in range(100)], done.stderr


TIMEOUT_S = 1.5
TIMES = f"linger_ms=0, delivery_timeout_ms={TIMEOUT_S * 1000:.0f}, request_timeout_ms=1000"


def test_many_producers_whose_broker_is_silent_are_given_their_time_together() -> None:
    with ScriptedBroker({"orders": 1}) as scripted:
        scripted.hold()
        script = f"""
import atexit, time
atexit.register(lambda: print(time.monotonic() - began))  # the first to be registered is the last to be called
import oncelog
producers = [oncelog.Producer("{scripted.bootstrap}", {TIMES}) for _ in range(5)]
for producer in producers: producer.partitions_for("orders")
began = time.monotonic()
for producer in producers: producer.send("orders", b"")
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S, check=False)
        scripted.gate.set()
    assert done.returncode == 0, done.stderr
    assert TIMEOUT_S <= float(done.stdout) < 5 * TIMEOUT_S


class Driver:
    def run(self) -> None:
        raise AssertionError("nobody starts it")

    def wake(self) -> None:
        self.woken = True


def test_who_gave_up_does_not_wait_after_all_in_the_next_exit() -> None:
    """Ctrl-C in `close(5)` within `with Producer(...)`: the block's own close would wait for two minutes."""
    core = SimpleNamespace(close_at_ms=None)
    driver = Driver()
    sender = SenderThread(driver, driver, core, None, "sender", 120.0, lambda: (0, ""))  # type: ignore[arg-type]
    assert sender.begin_to_end() == 120.0
    assert sender.begin_to_end(0) == 0
    given_up_ms = core.close_at_ms
    assert sender.begin_to_end() == 0
    sender.begin_to_exit()
    assert core.close_at_ms == given_up_ms


INTERRUPTED = """
import oncelog, signal
producer = oncelog.Producer("{bootstrap}", linger_ms=0, client_id="till"{settings})
producer.partitions_for("orders")
future = producer.send("orders", b"paid")
{then}
"""
CTRL_C_ONCE_TOLD = """
import logging, os
class Impatient(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        os.kill(os.getpid(), signal.SIGINT)
logging.getLogger("oncelog.producer.sender_thread").addHandler(Impatient())
future.add_done_callback(lambda future: print(type(future.exception()).__name__))
"""


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "with producer: raise KeyboardInterrupt"])
def test_who_waits_at_the_end_of_a_program_is_told_and_can_end_it(end: str) -> None:
    with ScriptedBroker({"orders": 1}) as scripted:
        scripted.hold()
        script = INTERRUPTED.format(bootstrap=scripted.bootstrap, settings="", then=CTRL_C_ONCE_TOLD + end)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S, check=False, text=True
        )
        scripted.gate.set()
    told = f"till-sender: still closing: 1 record waits for an answer of the brokers ({scripted.bootstrap}), for "
    assert done.stderr.count(told) == 1, done.stderr
    assert "s at most; Ctrl-C gives up on what waits" in done.stderr
    assert "atexit" not in done.stderr
    assert done.stdout == "DeliveryFailed\n"


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "with producer: raise KeyboardInterrupt"])
def test_records_in_a_spool_do_not_hold_up_the_end_of_a_program(tmp_path: Path, end: str) -> None:
    """They would for two minutes."""
    with ScriptedBroker({"orders": 1}) as scripted:
        scripted.hold()
        settings = f", spool_dir={str(tmp_path)!r}"
        script = INTERRUPTED.format(bootstrap=scripted.bootstrap, settings=settings, then=end)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False, text=True)
        scripted.gate.set()
    assert "1 record waits" in done.stderr
    assert "s at most; what is not sent by then stays in the spool" in done.stderr
