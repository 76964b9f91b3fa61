"""What is said of bytes that make no sense: in words for people, in one line that is not long, whatever the bytes are.
Python's own words about them (`unpack_from requires a buffer of at least ...`) reach nobody, nor do the bytes raw."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from oncelog.controller.end_offset_checkpoint import decode_noted
from oncelog.controller.identity import read_identity
from oncelog.controller.quorum_state import read_quorum_state
from oncelog.controller.records import decode_record
from oncelog.controller.snapshot import decode_snapshot, encode_snapshot
from oncelog.controller.state import ControllerState
from oncelog.errors import OncelogError
from oncelog.log import checkpoints, manifest, producer_snapshot
from oncelog.log.index import OffsetIndex, TimeIndex
from oncelog.log.leader_epochs import LeaderEpochCache
from oncelog.log.partition_register import PartitionRegister
from oncelog.log.transaction_index import TransactionIndex
from oncelog.records import compression
from oncelog.records.batch import build_batch, decode_records
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import decode_exactly, encode
from oncelog.wire.fetch import decode_fetch_request, decode_fetch_response
from oncelog.wire.frame import decode_request_header, decode_response_header
from oncelog.wire.produce import decode_produce_request, decode_produce_response
from oncelog.wire.schema import load_schema
from tests.log.test_manifest import MANIFEST
from tests.records.conftest import kernel
from tests.support.faulty_storage import FaultyStorage

__all__ = ["kernel"]

OF_PYTHON = (
    "unpack", "struct.error", "buffer of", "out of range", "out of bounds on", "codec can't", "decode byte",
    "bytes-like", "int()", "invalid literal", "Error(", "Error:", "NoneType", "object is not", "not enough values",
    "too many values", "dimension", "expecting value", "string index", "UUID", "base64", "hexadecimal", "zlib",
)  # fmt: skip
"""What its errors say."""
MAX_CHARACTERS = 400

NOISE = [
    b"",
    b"\0",
    b"\xff\xfe\x1b[2J\n",
    b"\n" * 7,
    b"0\n1\nx\ny\n",
    b"0\n99999999999999999999999\n",
    b"{}",
    b"[1, 2",
    b"\x1b]0;title\x07" * 900,
    "\u202e\u2028 0 0\n".encode() * 99,
    b"9" * 6000,
    bytes(random.Random(4).randbytes(3000)),
]


def check(error: OncelogError) -> None:
    said = str(error)
    assert said.isprintable(), repr(said)
    assert len(said) <= MAX_CHARACTERS, said
    assert not [word for word in OF_PYTHON if word in said], said


def told(read: Callable[[], Any]) -> OncelogError | None:
    """Nothing else is raised."""
    try:
        read()
    except OncelogError as error:
        check(error)
        return error
    return None


def damaged(content: bytes) -> Iterator[bytes]:
    """Cut off everywhere, and with each byte changed in two ways."""
    yield from NOISE
    step = max(len(content) // 60, 1)
    for position in range(0, len(content), step):
        yield content[:position]
        for value in (0xFF, content[position] ^ 0x41):
            changed = bytearray(content)
            changed[position] = value
            yield bytes(changed)


# --- the wire ---


MESSAGES = [f"{key.schema_prefix}{kind}" for key in ApiKey for kind in ("Request", "Response")]


@pytest.mark.parametrize("name", MESSAGES)
def test_of_a_message(name: str) -> None:
    versions = load_schema(name).valid
    for version in sorted({versions.lowest, versions.highest}):
        if not versions.includes(version):
            continue
        try:
            good = bytes(encode(name, version, {}))
        except ValueError:
            good = bytes(9)
        for content in damaged(good):
            told(lambda content=content, version=version: decode_exactly(name, version, content))  # type: ignore[misc]


@pytest.mark.parametrize(
    "decode", [decode_produce_request, decode_produce_response, decode_fetch_request, decode_fetch_response]
)
def test_of_a_hot_message(decode: Callable[[memoryview, int, int], object]) -> None:
    for version in range(4, 17):
        for content in [*NOISE, *(bytes([fill]) * size for fill in (0, 1, 2, 0x7F, 0xFF) for size in range(0, 90, 7))]:
            told(lambda content=content, version=version: decode(memoryview(content), 0, version))  # type: ignore[misc]


def test_of_a_header() -> None:
    for content in [*NOISE, b"\0\x03\0\x09\0\0\0\1\0\4\xff\xff\xff\xff\0"]:
        for read in (
            lambda content=content: decode_request_header(memoryview(content)),
            lambda content=content: decode_response_header(ApiKey.METADATA, 12, memoryview(content)),
        ):
            told(read)


# --- records ---


@pytest.mark.parametrize("codec", range(5))
def test_of_a_batch(kernel: ModuleType, codec: int) -> None:
    rows = [(1, b"key", b"value" * 9, (("name", b"text"),)) for _ in range(5)]
    batch = bytes(build_batch(rows, codec=codec))
    count = 0
    for content in damaged(batch):
        count += told(lambda content=content: decode_records(content)) is not None  # type: ignore[misc]
    assert count > 20


@pytest.mark.parametrize("codec", range(1, 5))
def test_of_compressed_bytes(codec: int) -> None:
    for content in damaged(bytes(compression.compress(codec, b"some text " * 40))):
        told(lambda content=content: compression.decompress(codec, content, max_bytes=10_000))  # type: ignore[misc]


# --- files ---


def with_file(name: str, content: bytes) -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory("data")
    storage.open(f"data/{name}", create=True).append(content)
    return storage


FILES: dict[str, tuple[bytes, Callable[[FaultyStorage], object]]] = {
    "leader-epoch-checkpoint": (b"0\n2\n0 0\n1 7\n", lambda storage: LeaderEpochCache(storage, "data").load()),
    "oncelog-manifest": (manifest.encode(MANIFEST), lambda storage: manifest.read_manifest(storage, "data")),
    "recovery-point-offset-checkpoint": (
        b"0\n2\na 0 7\nb 1 8\n",
        lambda storage: checkpoints.read_offsets(storage, "data", "recovery-point-offset-checkpoint"),
    ),
    "partition.metadata": (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACw",
        lambda storage: checkpoints.read_topic_id(storage, "data"),
    ),
    "oncelog-partitions": (
        b"orders 0 00000000000000000000000000000001 9ae0daaf\n",
        lambda storage: PartitionRegister(storage, "data").load(),
    ),
    "meta.properties": (
        b"cluster.id=x\ndirectory.id=D7PcOVo9RrqXW9qI9in3cw\nnode.id=1\nversion=1\n",
        lambda storage: read_identity(storage, "data"),
    ),
    "quorum-state": (
        b'{"leaderId":1,"leaderEpoch":3,"currentVoters":[{"voterId":1}]}',
        lambda storage: read_quorum_state(storage, "data", is_ours=False),
    ),
    "7.index": (bytes(8) * 4, lambda storage: OffsetIndex(storage, "data/7.index", 7, 800).load(growing=True)),
    "7.timeindex": (bytes(12) * 4, lambda storage: TimeIndex(storage, "data/7.timeindex", 7, 800).load(growing=True)),
    "7.txnindex": (bytes(34) * 4, lambda storage: TransactionIndex(storage, "data/7.txnindex", 7).entries()),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_of_a_file(name: str) -> None:
    content, read = FILES[name]
    for changed in damaged(content):
        told(lambda changed=changed: read(with_file(name, changed)))  # type: ignore[misc]


def test_of_what_controllers_and_producers_left() -> None:
    state = ControllerState()
    for content in damaged(encode_snapshot(state, 1, 1)):
        told(lambda content=content: decode_snapshot(content))  # type: ignore[misc]
        told(lambda content=content: decode_record(content))  # type: ignore[misc]
        told(lambda content=content: decode_noted(content))  # type: ignore[misc]
    for content in damaged(producer_snapshot.encode((), 1)):
        told(lambda content=content: producer_snapshot.decode(content, 1))  # type: ignore[misc]
