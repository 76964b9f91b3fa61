from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.log.checkpoints import (
    CorruptCheckpoint,
    read_offsets,
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_offsets,
    write_topic_id,
)
from oncelog.types import TopicPartition
from tests.support.faulty_storage import FaultyStorage

NAME = "recovery-point-offset-checkpoint"
TOPIC_ID = UUID("c3802d56-067a-4edd-9194-7a13f6bcbfab")


@pytest.fixture
def storage() -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory("data")
    return storage


def test_offsets_are_kafkas_text(storage: FaultyStorage) -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 0, TopicPartition("a", 2): 20044}
    write_offsets(storage, "data", NAME, offsets)
    assert storage.content(f"data/{NAME}") == b"0\n3\na 2 20044\na 10 0\nb 1 7\n"
    assert read_offsets(storage, "data", NAME) == offsets


def test_no_file_means_no_offsets(storage: FaultyStorage) -> None:
    assert read_offsets(storage, "data", NAME) == {}


def test_an_empty_file_means_no_offsets_as_kafka_creates_it(storage: FaultyStorage) -> None:
    storage.write_atomically(f"data/{NAME}", b"")
    assert read_offsets(storage, "data", NAME) == {}


@pytest.mark.parametrize("content", [b"0\n", b"9\n0\n", b"0\n2\na 1 2\n", b"0\n1\na one 2\n", b"0\n1\na 1\n", b"\xff"])
def test_damaged_offsets_are_refused(storage: FaultyStorage, content: bytes) -> None:
    storage.open(f"data/{NAME}", create=True).append(content)
    with pytest.raises(CorruptCheckpoint):
        read_offsets(storage, "data", NAME)


def test_a_clean_shutdown_is_believed_once_even_if_the_power_goes(storage: FaultyStorage) -> None:
    assert not take_clean_shutdown(storage, "data")
    write_clean_shutdown(storage, "data", broker_epoch=10)
    assert storage.content("data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":10}'
    assert take_clean_shutdown(storage, "data")
    assert not any(take_clean_shutdown(storage.after_power_loss(seed), "data") for seed in range(10))


def test_topic_id_is_kafkas_text(storage: FaultyStorage) -> None:
    assert read_topic_id(storage, "data") is None
    write_topic_id(storage, "data", TOPIC_ID)
    assert storage.content("data/partition.metadata") == b"version: 0\ntopic_id: w4AtVgZ6Tt2RlHoT9ry_qw"
    assert read_topic_id(storage, "data") == TOPIC_ID


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: w4AtVgZ6Tt2RlHoT9ry_qw", b"version: 0\ntopic_id: short", b"version: 0"]
)
def test_a_damaged_topic_id_is_refused(storage: FaultyStorage, content: bytes) -> None:
    storage.open("data/partition.metadata", create=True).append(content)
    with pytest.raises(CorruptCheckpoint):
        read_topic_id(storage, "data")
