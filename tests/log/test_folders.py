"""Names of folders: Kafka's own, both ways."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.log import folders
from oncelog.types import TopicPartition

TOPIC_ID = UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("name", "topic_partition"),
    [
        ("orders-3", TopicPartition("orders", 3)),
        ("with-dashes-and.dots-12", TopicPartition("with-dashes-and.dots", 12)),
        ("__consumer_offsets-0", TopicPartition("__consumer_offsets", 0)),
        ("__cluster_metadata-0", None),
        ("orders", None),
        ("-3", None),
        ("orders-", None),
        ("orders-3x", None),
        ("orders-\u0663", None),
        ("lost+found", None),
        (f"orders-3.{TOPIC_ID.hex}-delete", None),
        (f"orders-3.{TOPIC_ID.hex}-stray", None),
    ],
)
def test_only_a_partitions_folder_is_taken_for_one(name: str, topic_partition: TopicPartition | None) -> None:
    assert folders.partition_of(name) == topic_partition


def test_a_retired_folder_is_named_as_kafka_does() -> None:
    name = folders.retired_name(TopicPartition("orders", 3), TOPIC_ID, folders.DELETE_SUFFIX)
    assert name == "orders-3.0123456789abcdef0123456789abcdef-delete"


def test_a_retired_name_fits_into_a_file_system() -> None:
    name = folders.retired_name(TopicPartition("t" * 249, 1_000), TOPIC_ID, folders.STRAY_SUFFIX)
    assert len(name) == 255
    assert name.endswith(f"t-1000.{TOPIC_ID.hex}-stray")
