"""A broker without a server: requests and answers go through the codec, as they would over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.config import BrokerConfig, Endpoint
from oncelog.broker.dispatch import Dispatcher
from oncelog.broker.state import BrokerState
from oncelog.log.producer_state import AppendOrigin
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from oncelog.records.batch import build_batch
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import encode_request
from tests.broker.support import Alarms, made
from tests.controller.support import counting_ids

NOW_MS = 1_700_000_000_000
Message = dict[str, Any]


@dataclass
class Asking:
    """`ask("metadata", 12, topics=None)` is the answer as a client decodes it."""

    broker: BrokerState

    def __call__(self, api: str, version: int, /, **body: Any) -> Message:
        key = ApiKey[api.upper()]
        encoded = codec.encode(key.schema_prefix + "Request", version, body)
        frame = encode_request(key, version, 1, "test", encoded)[4:]
        dispatcher = Dispatcher(self.broker)
        header, answer = dispatcher.dispatch(memoryview(bytearray(frame)), NOW_MS)
        answer = made(dispatcher, header, answer)
        assert isinstance(answer, dict)
        schema = key.schema_prefix + "Response"
        return codec.decode_exactly(schema, header.api_version, codec.encode(schema, header.api_version, answer))

    def create(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """A topic; the keys of configs with `_` for `.`."""
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        (created,) = self("create_topics", 7, topics=[topic])["topics"]
        assert created["error_code"] == 0, created["error_message"]
        topic_id: UUID = created["topic_id"]
        return topic_id

    def append(self, name: str, index: int, *timestamps: int, producer_id: int = -1, sequence: int = -1) -> None:
        """One batch with a record per timestamp."""
        epoch = 0 if producer_id >= 0 else -1
        rows = [(timestamp, b"key", b"value", ()) for timestamp in timestamps]
        batch = build_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        log = self.broker.partition(name, index)
        log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.CLIENT)
        log.advance_high_watermark(log.log_end_offset)


def open_broker(folder: Path, **texts: str) -> BrokerState:
    settings = {"log.dirs": str(folder / "data"), **{name.replace("_", "."): text for name, text in texts.items()}}
    config = BrokerConfig.from_settings(settings)
    broker = BrokerState.open(config, FileStorage(), now_ms=NOW_MS, new_id=counting_ids())
    broker.timers = Alarms()
    broker.endpoint = Endpoint("broker.example", 9092)
    return broker


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asking]:
    broker = open_broker(tmp_path)
    yield Asking(broker)
    broker.stop(NOW_MS)
