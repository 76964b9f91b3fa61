"""Somebody who only wants to know where the topics are: asks every few milliseconds until told to stop.

A process of its own (`python -m tests.hostile.victim HOST PORT TOPIC`), so that what it waits for is the broker and not
the attacker. It says `ready` after its first answer, and when its input ends how many milliseconds each answer took.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.support.raw import RawClient, encode_request

PAUSE_S = 0.002


@contextlib.contextmanager
def victim(address: tuple[str, int], topic: str) -> Iterator[list[float]]:
    """Asks while the block runs; the list is filled at its end. Raises if it was not answered."""
    command = [sys.executable, "-m", "tests.hostile.victim", address[0], str(address[1]), topic]
    answers_ms: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield answers_ms
        finally:
            said, _ = process.communicate()
    assert process.returncode == 0, "the victim was not served"
    answers_ms += json.loads(said)


def main() -> None:
    host, port, topic = sys.argv[1:]
    frame = encode_request("metadata", 12, {"topics": [{"name": topic, "topic_id": None}]})
    answers_ms: list[float] = []
    with RawClient((host, int(port))) as client:
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            began_s = time.perf_counter()
            client.send_bytes(frame)
            client.receive_frame()
            answers_ms.append((time.perf_counter() - began_s) * 1000)
            if len(answers_ms) == 1:
                print("ready", flush=True)
    print(json.dumps(answers_ms))


if __name__ == "__main__":
    main()
