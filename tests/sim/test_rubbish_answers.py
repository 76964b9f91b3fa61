"""Brokers that answer rubbish to a group of whole consumers: whatever it says, they report it or try again.

They never break, never hang and never go round in circles, they can be closed, and who comes after them reads on. What
a damaged answer makes them believe (another offset, a later leader) they cannot know, so only that is promised here.
`ONCELOG_SIM_SEEDS=1000:3000` plays other seeds than the few of every test run; a failure names its seed.
"""

from __future__ import annotations

import random
import struct
from collections import Counter

import pytest

from oncelog.client.network import MAX_THROTTLE_MS
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from tests.sim.group_member import Member
from tests.sim.group_world import GroupWorld
from tests.sim.test_group_world import KINDS, STYLES, seeds

PARTITIONS = 3
ROUNDS = 40
HEADER_BYTES = 8
COUNTS = (-1, -2, 0, 1, 127, 32767, 65536, 2**24, 2**31 - 1, -(2**31))
VARINTS = (b"\x00", b"\x01", b"\x7f", b"\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 10)
MAX_BUFFERED_BYTES = 64_000
"""Far more than the members' settings allow, and far less than what an answer can claim."""


class RubbishWorld(GroupWorld):
    """One that keeps no books: what comes is not what was sent."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(PARTITIONS, chance)
        self.damaged = 0
        self.share = 0.0
        self.garble = self._damaged

    def handed_out(self, member: Member, records: list[ConsumerRecord]) -> None:
        for record in records:
            self.handed[TopicPartition(record.topic, record.partition)].add(record.offset)

    def _offset_committed(self, partition: TopicPartition, offset: int) -> None:
        self.committed[partition] = offset

    def _damaged(self, answer: bytes) -> bytes:
        if self.chance.random() >= self.share or len(answer) <= HEADER_BYTES:
            return answer
        self.damaged += 1
        body = damaged(self.chance, bytearray(answer[HEADER_BYTES:]))
        correlation = answer[4:8] if self.chance.random() < 0.97 else self.chance.randbytes(4)
        return struct.pack(">i", len(body) + 4) + correlation + body


def damaged(chance: random.Random, body: bytearray) -> bytes:
    """Small damage is the most telling: much of it still decodes."""
    at = chance.randrange(len(body))
    kind = chance.choice(("flip", "flip", "flip", "count", "varint", "error", "cut", "insert", "noise"))
    if kind == "flip":
        body[at] ^= 1 << chance.randrange(8)
    elif kind == "count":
        body[at : at + 4] = struct.pack(">i", chance.choice(COUNTS))
    elif kind == "varint":
        body[at : at + 1] = chance.choice(VARINTS)
    elif kind == "error":
        body[at : at + 2] = struct.pack(">h", chance.randint(-1, 130))
    elif kind == "cut":
        del body[at:]
    elif kind == "insert":
        body[at:at] = chance.randbytes(chance.randint(1, 30))
    else:
        body[:] = chance.randbytes(chance.randint(0, 60))
    return bytes(body)


def play(seed: int, kind: str) -> Counter[str]:
    chance = random.Random(f"rubbish {kind} {seed}")
    world = RubbishWorld(chance)
    members = [world.join(style, **KINDS[kind]) for style in STYLES[:2]]
    world.pass_time(3_000)
    for _ in range(ROUNDS):
        world.share = chance.choice((0.0, 0.1, 0.5))
        world.append(chance.randrange(PARTITIONS), 3)
        world.pass_time(chance.choice((50, 300, 1_000)))
        for member in members:
            assert member.core.fatal is None, member.core.fatal
            assert member.buffered_bytes <= MAX_BUFFERED_BYTES
    world.share = 0.0
    world.pass_time(2 * MAX_THROTTLE_MS)
    they_can_be_closed(world)
    their_heir_reads_on(world, kind)
    return Counter(type(error).__name__ for member in members for error in member.errors)


def they_can_be_closed(world: RubbishWorld) -> None:
    for member in world.alive:
        assert member.core.fatal is None, member.core.fatal
        member.is_leaving = True
    world.append(0, 1)  # who iterates looks up with the next record
    world.pass_time(2 * MAX_THROTTLE_MS)
    assert not world.alive, world.alive


def their_heir_reads_on(world: RubbishWorld, kind: str) -> None:
    """Whatever they believed, and committed in good faith."""
    world.join("auto", **KINDS[kind])
    world.pass_time(MAX_THROTTLE_MS)
    ends = {partition: log.end_offset for partition, log in world.cluster.logs.items()}
    for partition in ends:
        world.append(partition.partition, 3)
    world.pass_time(20_000)
    for partition, end in ends.items():
        assert world.handed[partition] >= {end, end + 1, end + 2}, f"{partition} is read no more: {world.alive}"


@pytest.mark.parametrize("kind", ["range", "cooperative", "kip848"])
def test_rubbish_is_reported_or_tried_again(kind: str) -> None:
    for seed in seeds("0:1"):
        try:
            print(seed, play(seed, kind))
        except BaseException as error:
            error.add_note(f"seed {seed} of {kind}: replay it with ONCELOG_SIM_SEEDS={seed}")
            raise
