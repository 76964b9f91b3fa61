"""What a program that ends without closing its producers leaves behind: everything delivered, and soon."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
