"""The manifest's bytes, and what it says against a folder."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.manifest import CorruptManifest, Manifest, SegmentEntry, decode, encode
from oncelog.types import TopicPartition

MANIFEST = Manifest(
    (SegmentEntry(0, 1000, 2, 77, 88, 4, 5, 1_700_000_000_000), SegmentEntry(250, 900), SegmentEntry(300)),
    17,
    250,
    (EpochEntry(0, 17), EpochEntry(3, 250)),
    312,
    99,
    UUID(int=5),
    4,
    TopicPartition("orders", 3),
)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode(encode(MANIFEST)) == MANIFEST
    assert decode(encode(MANIFEST._replace(topic_id=None))).topic_id is None
    assert decode(encode(MANIFEST._replace(partition=None))).partition is None, "as an earlier version wrote it"


def test_no_flipped_bit_and_no_missing_byte_is_believed() -> None:
    data = encode(MANIFEST)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(CorruptManifest):
            decode(bytes(flipped))
        with pytest.raises(CorruptManifest):
            decode(data[:position])


@pytest.mark.parametrize(
    ("found", "contradiction"),
    [
        ([0, 250, 300], None),
        ([0, 250, 300, 400], None),  # a roll that was not noted
        ([250, 300], "00000000000000000000.log"),
        ([0, 300], "00000000000000000250.log"),
        ([0, 250], "00000000000000000300.log"),
        ([], "3 of the 3 segments"),
        ([0, 100, 250, 300], "does not belong here"),
    ],
)
def test_what_contradicts_a_manifest(found: list[int], contradiction: str | None) -> None:
    told = MANIFEST.contradiction(found)
    assert told == contradiction if contradiction is None else contradiction in (told or "")


def test_what_waits_to_be_removed_contradicts_nothing() -> None:
    assert MANIFEST._replace(segments=MANIFEST.segments[1:]).contradiction([0, 250, 300]) is None


def test_a_manifest_from_before_kafka_ran_is_stale() -> None:
    assert MANIFEST.is_stale(5)
    assert not MANIFEST.is_stale(4)
    assert not MANIFEST.is_stale(0), "a lost quorum-state is no run of Kafka"


def test_a_swap_leaves_only_what_it_put_there() -> None:
    swapped = MANIFEST.swapped([0], 0, 300)
    assert [entry.base_offset for entry in swapped.segments] == [0, 300]
    assert swapped.segments[0] == SegmentEntry(0)
