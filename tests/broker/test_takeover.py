"""The broker on metadata that Kafka wrote: leader epochs in the logs, configs that cannot be kept, a failing disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.broker.config import BrokerConfig
from oncelog.broker.state import BrokerState
from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import Outcome
from oncelog.errors import InvalidConfig, KafkaStorageError
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from tests.broker.handlers.conftest import NOW_MS, Asking, open_broker
from tests.controller.support import counting_ids
from tests.support.batches import make_batch

UNDEFINED = -1


def resign(broker: BrokerState, topic: str) -> None:
    """As Kafka's controller when its only broker stops."""
    topic_id = broker.controller.state.topics[topic].id
    body = {"partition_id": 0, "topic_id": topic_id, "leader": -1, "isr": []}
    broker.controller.commit(Outcome([MetadataRecord(RecordType.PARTITION_CHANGE, body)], None), NOW_MS)


def end_of_epoch(ask: Asking, epoch: int) -> tuple[int, int]:
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    answer = ask("offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": "orders", "partitions": [asked]}])
    (found,) = answer["topics"][0]["partitions"]
    return found["leader_epoch"], found["end_offset"]


def test_an_epoch_begins_where_the_log_ended(tmp_path: Path) -> None:
    before = Asking(open_broker(tmp_path))
    before.create("orders")
    before.append("orders", 0, NOW_MS, NOW_MS)
    resign(before.broker, "orders")
    ask = Asking(open_broker(tmp_path))
    log = ask.broker.partition("orders", 0)
    assert ask.broker.leader_epoch("orders", 0) == 2
    assert log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(2, 2))
    assert [end_of_epoch(ask, epoch) for epoch in (0, 1, 2)] == [(0, 2), (0, 2), (2, 2)]
    assert end_of_epoch(ask, 3) == (UNDEFINED, UNDEFINED)
    again = open_broker(tmp_path).partition("orders", 0)
    assert again.leader_epochs.entries == log.leader_epochs.entries


def test_an_empty_log_of_a_first_epoch_needs_no_note(tmp_path: Path) -> None:
    Asking(open_broker(tmp_path)).create("orders")
    assert open_broker(tmp_path).partition("orders", 0).leader_epochs.entries == ()


class NoEpochs(FileStorage):
    """A disk on which the leader epochs of topics cannot be written, while it is `full`."""

    def __init__(self) -> None:
        self.full = True

    def rename(self, source: str, target: str) -> None:
        if self.full and target.endswith("leader-epoch-checkpoint") and "__cluster_metadata-0" not in target:
            raise OSError(28, "No space left on device")
        super().rename(source, target)


def test_an_epoch_that_cannot_be_noted_is_noted_by_the_next_append(tmp_path: Path) -> None:
    before = Asking(open_broker(tmp_path))
    before.create("orders")
    before.create("paid")
    resign(before.broker, "orders")
    config = BrokerConfig.from_settings({"log.dirs": str(tmp_path / "data")})
    disk = NoEpochs()
    ask = Asking(BrokerState.open(config, disk, now_ms=NOW_MS, new_id=counting_ids()))
    log = ask.broker.partition("orders", 0)
    batch = bytearray(make_batch([b"value"]))
    with pytest.raises(KafkaStorageError):
        log.append(batch, kernel.parse_header(batch), leader_epoch=1, now_ms=NOW_MS)
    disk.full = False
    log.append(batch, kernel.parse_header(batch), leader_epoch=1, now_ms=NOW_MS)
    assert (log.leader_epochs.latest_epoch, log.log_end_offset) == (1, 1)
    ask.broker.partition("paid", 0)


def test_a_topic_config_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders")
    body = {"resource_type": 2, "resource_name": "orders", "name": "remote.storage.enable", "value": "true"}
    ask.broker.controller.commit(Outcome([MetadataRecord(RecordType.CONFIG, body)], None), NOW_MS)
    with pytest.raises(InvalidConfig, match=r"topic orders was configured with .*Tiered Storage"):
        open_broker(tmp_path)
