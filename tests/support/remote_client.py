"""A client in another language, told what to do line by line: a command as JSON goes in, its outcome comes out.

A command has a name (`do`) and, but for `read`, the number of the producer that is meant (`as`); `open` makes a
producer that is ready to begin. The outcome is `{"done": ...}`, or `{"refused": name}` with the client's name of the
error that it raised.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import go, parts
from tests.support.batches import CODECS
from tests.support.transaction_suite import Refused

PROGRAMS = Path(__file__).parents[1] / "interop"
PATIENCE_S = 120.0


class RemoteProducer:
    def __init__(self, client: RemoteClient, number: int, **settings: Any) -> None:
        self._client = client
        self._number = number
        self._do("open", **settings)

    def _do(self, what: str, **details: Any) -> Any:
        return self._client.do({"do": what, "as": self._number, **details})

    def begin(self) -> None:
        self._do("begin")

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        self._do("send", topic=topic, partition=partition, values=[value.decode() for value in values])

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._do("send_offsets", group=group, topic=topic, offsets=offsets)

    def commit(self) -> None:
        self._do("commit")

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        self._do("close")


class RemoteClient:
    """The program serves one test: as many producers as that needs, and reads."""

    codecs: tuple[str, ...]
    fenced: tuple[str, ...]
    overdue: tuple[str, ...]
    shortest_timeout_ms = 300

    def __init__(self, command: list[str], **environment: str) -> None:
        self._numbers = itertools.count(1)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def do(self, command: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert readable, f"no answer to {command} within {PATIENCE_S} s"
        line = self._process.stdout.readline()
        assert line, f"the program ended on {command}"
        outcome = json.loads(line)
        if "refused" in outcome:
            raise Refused(outcome["refused"])
        return outcome["done"]

    def producer(self, transactional_id: str, *, timeout_ms: int, codec: str) -> RemoteProducer:
        settings = {"transactional_id": transactional_id, "timeout_ms": timeout_ms, "codec": codec}
        return RemoteProducer(self, next(self._numbers), **settings)

    def read(self, topic: str, partition: int, last: bytes, *, isolation: str) -> list[bytes]:
        wanted = {"topic": topic, "partition": partition, "last": last.decode(), "isolation": isolation}
        return [value.encode() for value in self.do({"do": "read", **wanted})]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class KafkaJS(RemoteClient):
    codecs = ("none", "gzip")
    fenced = overdue = ("INVALID_PRODUCER_EPOCH",)

    def __init__(self, servers: str) -> None:
        modules = parts.required(parts.kafkajs) / "node_modules"
        super().__init__(["node", str(PROGRAMS / "kafkajs_transactions.js"), servers], NODE_PATH=str(modules))


class FranzGo(RemoteClient):
    codecs = tuple(CODECS)
    fenced = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    overdue = ("INVALID_TXN_STATE",)

    def __init__(self, servers: str) -> None:
        super().__init__([str(go.program(PROGRAMS / "go")), "transactions", servers])
