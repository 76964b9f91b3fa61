"""A broker that answers a producer as the test says: at once, when its gate opens, with an error, or with rubbish."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from oncelog.records.batch import decode_records
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import RequestHeader
from tests.client.fake_broker import SILENCE, FakeBroker, metadata_answer
from tests.support.patience import PATIENCE_S

UNKNOWN_TOPIC = 3


class ScriptedBroker(FakeBroker):
    """Leads every partition of `topics` and stores what it is sent, once `gate` is open."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = dict(topics)
        self.gate = threading.Event()
        self.gate.set()
        self.produce_codes: list[int] = []
        """How the next Produce requests are answered, all their partitions alike."""
        self.metadata_answers: list[Callable[[], object]] = []
        """What the next Metadata requests are answered."""
        self.topic_code = UNKNOWN_TOPIC
        """What is said against topics that do not exist."""
        self.id_code = 0
        self.log: dict[tuple[str, int], list[bytes | None]] = {}
        self.asked: Counter[ApiKey] = Counter()
        super().__init__(self._handle)

    def hold(self) -> None:
        """From now on Produce requests wait for `gate.set()`."""
        self.gate.clear()

    def describe(self, names: list[str]) -> Message:
        answer = metadata_answer(self, {name: self.topics[name] for name in names if name in self.topics})
        answer["topics"] += [
            {"name": name, "error_code": self.topic_code, "partitions": []} for name in names if name not in self.topics
        ]
        return answer

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a producer that was closed does not wait for answers
            super()._serve(connection)

    def _handle(self, header: RequestHeader, message: Message) -> object:
        self.asked[ApiKey(header.api_key)] += 1
        if header.api_key == ApiKey.METADATA:
            if self.metadata_answers:
                return self.metadata_answers.pop(0)()
            return self.describe([topic["name"] for topic in message["topics"] or ()])
        if header.api_key == ApiKey.INIT_PRODUCER_ID:
            return {"error_code": self.id_code, "producer_id": 7, "producer_epoch": 0}
        assert header.api_key == ApiKey.PRODUCE
        assert self.gate.wait(PATIENCE_S)
        code = self.produce_codes.pop(0) if self.produce_codes else 0
        answer = {"responses": [self._produced(topic, code) for topic in message["topic_data"]]}
        return SILENCE if message["acks"] == 0 else answer

    def _produced(self, topic: Message, code: int) -> Message:
        return {
            "name": topic["name"],
            "partition_responses": [self._appended(topic["name"], one, code) for one in topic["partition_data"]],
        }

    def _appended(self, topic: str, sent: Message, code: int) -> dict[str, Any]:
        log = self.log.setdefault((topic, sent["index"]), [])
        base_offset = len(log)
        if code == 0:
            log += [record.value for record in decode_records(sent["records"])]
        return {
            "index": sent["index"],
            "error_code": code,
            "base_offset": base_offset if code == 0 else -1,
            "log_append_time_ms": -1,
        }
