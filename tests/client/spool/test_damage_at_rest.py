"""What becomes of a spool whose files were damaged while nobody used it: every file, every damage, on real files.

The table that comes out is the one in docs/spool.md, word for word. Whatever is damaged, nothing is ever stored twice
or out of order; and where something is missing, it is said, but for the cells that say `not noticed`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from oncelog.client.spool.errors import SpoolError
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.fate import judge
from oncelog.client.spool.frame import Frame, walk
from oncelog.client.spool.identity import FILE_NAME, SpoolIdentity
from oncelog.client.spool.refusal import refusal
from oncelog.client.spool.spool import Spool, SpoolConfig, read_discarded
from oncelog.log.storage import FileStorage
from oncelog.types import TopicPartition
from tests.client.spool.driver import NOW_MS, ModelBroker, Sent

A = TopicPartition("orders", 0)
CONFIG = SpoolConfig(max_bytes=8_000)
"""So that a file of records ends at 1,000 bytes."""
RECORDS = 18
SETTLED, IN_FLIGHT = 2, 4
"""The first two are settled, the next two may be stored, and are; or all up to the last two may be, and are not. The
others wait."""

WHOLE, NAMED, ASKED, REFUSED, SILENT = "no harm", "reported", "you decide", "refused", "not noticed"

DOCS = Path(__file__).parents[3] / "docs" / "spool.md"
ENDS = ("close()", "kill -9")
FILES = ("`.records`, full", "`.records`, growing", "`.journal`", "`transactional.json`")

Files = dict[str, bytes]


def value(entry: int) -> bytes:
    return b"%02d" % entry + b"." * 80


def numbers(first: int, end: int) -> Numbered:
    return Numbered(A, first, end - first, Identity(7, 0), first, NOW_MS)


class Past:
    """A spool that was used, and its folder as it was after every step."""

    def __init__(self, folder: Path, *, is_killed: bool, is_transactional: bool, is_stored: bool) -> None:
        self.folder = folder
        self.is_transactional = is_transactional
        self.is_stored = is_stored
        self.in_flight = IN_FLIGHT if is_stored else RECORDS - 2
        self.broker = ModelBroker()
        self.states: list[Files] = []
        self._live(is_killed)

    def _live(self, is_killed: bool) -> None:
        spool, _ = Spool.open(FileStorage(), str(self.folder), CONFIG)
        if self.is_transactional:
            spool.belong_to(SpoolIdentity("billing", "a folder", "positions", 0))
            self._keep()
            spool.open_for("billing", "positions")
        for entry in range(RECORDS - 2):
            self._send(spool, entry)
        while spool.peek() is not None:
            spool.took(*A)
        for first, end in ((0, SETTLED), (SETTLED, self.in_flight)):
            spool.numbered([numbers(first, end)])
            self._keep()
            if self.is_stored or end == SETTLED:
                self.broker.produce(Sent(numbers(first, end), [value(entry) for entry in range(first, end)]))
            if end == SETTLED:
                spool.settled(*A, first, end - first)
                self._keep()
        for entry in range(RECORDS - 2, RECORDS):
            self._send(spool, entry)
        if not is_killed:
            spool.close()
            self._keep()

    def _send(self, spool: Spool, entry: int) -> None:
        spool.append(*A, NOW_MS, None, value(entry))
        self._keep()

    def _keep(self) -> None:
        self.states.append({path.name: path.read_bytes() for path in self.folder.iterdir()})

    @property
    def files(self) -> Files:
        return self.states[-1]

    def of(self, kind: str) -> list[str]:
        """The names of the files of a kind."""
        records = sorted(name for name in self.files if name.endswith(".records"))
        journals = [name for name in self.files if name.endswith(".journal")]
        return dict(zip(FILES, (records[:-1], records[-1:], journals, [FILE_NAME]), strict=True))[kind]


@pytest.fixture(autouse=True)
def tiny_journals() -> None:
    """Not here: a journal that has just begun anew has no older copies."""


@cache
def past(end: str, *, is_transactional: bool, is_stored: bool = True) -> Past:
    """`is_stored`: what was in flight reached the broker."""
    return Past(Path(mkdtemp()), is_killed=end == ENDS[1], is_transactional=is_transactional, is_stored=is_stored)


# --- what happens to a file -------------------------------------------------------------------------------------------


def frames(name: str, data: bytes) -> list[Frame]:
    if name == FILE_NAME:
        return []
    return [item for item in walk(int(name.partition(".")[0]), data, may_be_torn=True) if isinstance(item, Frame)]


def deleted(past: Past, name: str) -> Iterator[bytes | None]:
    yield None


def emptied(past: Past, name: str) -> Iterator[bytes | None]:
    yield b""


def cut_between_frames(past: Past, name: str) -> Iterator[bytes | None]:
    for frame in frames(name, past.files[name]):
        yield past.files[name][: frame.end]


def cut_inside(past: Past, name: str) -> Iterator[bytes | None]:
    data = past.files[name]
    found = frames(name, data)
    if not found:
        yield from (data[:size] for size in range(1, len(data)))
    for frame in found:
        yield data[: frame.position + 3]
        yield data[: (frame.position + frame.end) // 2]
        yield data[: frame.end - 1]
    if found:
        yield data[: found[-1].end + 5]


def flipped(past: Past, name: str) -> Iterator[bytes | None]:
    data = past.files[name]
    end = len(data.rstrip(b"\0"))
    for position in [*range(0, end, 3 if past.is_stored else 31), end - 1, *range(end, len(data), 20_000)]:
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        yield bytes(changed)


def older(past: Past, name: str) -> Iterator[bytes | None]:
    now = past.files[name]
    copies = {state[name] for state in past.states if name in state}
    if name.endswith(".records"):  # beyond that, a file that is empty
        copies = {data for data in copies if any(data)}
    yield from copies - {now, b""}


DAMAGES: dict[str, Callable[[Past, str], Iterator[bytes | None]]] = {
    "deleted": deleted,
    "emptied": emptied,
    "cut between frames": cut_between_frames,
    "cut inside one": cut_inside,
    "one bit flipped": flipped,
    "an older copy": older,
}


# --- what comes of it -------------------------------------------------------------------------------------------------


def outcome(past: Past, name: str, data: bytes | None, folder: Path) -> str:
    """Opens the spool, settles what is open as a producer does, sends what waits, and looks at what is stored."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for each, content in past.files.items():
        (folder / each).write_bytes(content)
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)
    damaged = {path.name: path.read_bytes() for path in folder.iterdir()}
    try:
        spool, recovery = Spool.open(FileStorage(), str(folder), CONFIG)
        if past.is_transactional:
            spool.open_for("billing", "positions")
            return WHOLE
    except SpoolError:
        return REFUSED
    log = list(past.broker.log)
    for one in recovery.open_partitions:
        judgement = judge(one, past.broker.listing(), NOW_MS)
        if judgement.unknown:
            spool.close()
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == damaged, "nothing is changed"
            return ASKED
        for batch in judgement.stored:
            spool.settled(*A, batch.numbers.first, batch.numbers.count)
        for batch in judgement.anew:
            spool.void(A, batch.numbers.first, batch.numbers.end)
        for batch in judgement.again:
            log += [record.value or b"" for record in batch.records]
    spool.resolved()
    while (record := spool.peek()) is not None:
        log.append(record.value or b"")
        spool.took(record.topic, record.partition)
    spool.close()
    assert log == sorted(set(log)), "nothing twice, nothing out of order"
    if recovery.damages or recovery.lost:
        return NAMED
    return WHOLE if len(log) == RECORDS else SILENT


def cell(kind: str, damage: str, end: str, folder: Path) -> str:
    is_transactional = kind == FILES[-1]
    found = {
        outcome(whole, name, data, folder)
        for whole in (past(end, is_transactional=is_transactional, is_stored=is_stored) for is_stored in (True, False))
        for name in whole.of(kind)
        for data in DAMAGES[damage](whole, name)
    }
    return " or ".join(each for each in (WHOLE, NAMED, ASKED, REFUSED, SILENT) if each in found) or "-"


def row(kind: str, end: str, folder: Path) -> str:
    return f"| {kind} | `{end}` | " + " | ".join(cell(kind, damage, end, folder) for damage in DAMAGES) + " |"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", FILES)
def test_the_table_in_the_documentation(kind: str, end: str, tmp_path: Path) -> None:
    logging.disable()
    try:
        found = row(kind, end, tmp_path / "spool")
    finally:
        logging.disable(logging.NOTSET)
    assert found in DOCS.read_text().splitlines(), f"docs/spool.md says something else than {found}"


@pytest.mark.parametrize("end", ENDS)
def test_without_damage_there_is_none(end: str, tmp_path: Path) -> None:
    for is_transactional in (False, True):
        whole = past(end, is_transactional=is_transactional)
        name = whole.of(FILES[1])[0]
        assert outcome(whole, name, whole.files[name], tmp_path / "spool") == WHOLE


def test_a_lock_that_is_gone_or_damaged_does_no_harm(tmp_path: Path) -> None:
    whole = past(ENDS[0], is_transactional=False)
    for data in (b"", b"rubbish"):
        assert outcome(whole, ".lock", data, tmp_path / "spool") == WHOLE


@pytest.mark.parametrize("kind", FILES[:3])
def test_a_file_that_is_put_back_cures_what_had_to_be_decided(kind: str, tmp_path: Path) -> None:
    whole = past(ENDS[1], is_transactional=False, is_stored=False)
    name = whole.of(kind)[0]
    folder = tmp_path / "spool"
    for data in (None, whole.files[name][:100]):
        assert outcome(whole, name, data, folder) == ASKED
        (folder / name).write_bytes(whole.files[name])
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole.files


def test_a_refusal_says_which_records_and_what_to_do(tmp_path: Path) -> None:
    whole = past(ENDS[1], is_transactional=False, is_stored=False)
    name = whole.of(FILES[0])[0]
    folder = tmp_path / "spool"
    cut = frames(name, whole.files[name])[2].end + 5
    assert outcome(whole, name, whole.files[name][:cut], folder) == ASKED
    spool, recovery = Spool.open(FileStorage(), str(folder), CONFIG)
    unknown = [one for left in recovery.open_partitions for one in judge(left, whole.broker.listing(), NOW_MS).unknown]
    said = str(refusal(str(folder), unknown, recovery, spool))
    ((first, end),) = recovery.lost_ranges[A]
    assert first == 3
    assert f"14 for orders-0 ({unknown[0].reason}): records 2 to 15, of which 3 to {end - 1} cannot be read" in said
    assert "those before 2 are settled" in said
    assert "Nothing was sent or changed." in said
    assert "Put that back from a copy and start again; otherwise what cannot be read is lost" in said
    assert f"resend (sends {14 - (end - first)} records;" in said

    discarded = spool.discard(A, 2, 16)
    assert discarded is not None
    assert [record.entry for record in read_discarded(Path(discarded).read_bytes())] == [2, *range(end, 16)]
    assert not spool.is_untouched


def test_nothing_is_moved_where_nothing_can_be_read(tmp_path: Path) -> None:
    whole = past(ENDS[1], is_transactional=False, is_stored=False)
    folder = tmp_path / "spool"
    assert outcome(whole, whole.of(FILES[0])[0], None, folder) == ASKED
    spool, _ = Spool.open(FileStorage(), str(folder), CONFIG)
    assert spool.unreadable(A, SETTLED, IN_FLIGHT) == [(SETTLED, IN_FLIGHT)]
    assert spool.discard(A, SETTLED, IN_FLIGHT) is None
    assert not list(folder.glob("*.discarded"))


def test_damage_is_said_once(tmp_path: Path) -> None:
    whole = past(ENDS[1], is_transactional=False)
    (name,) = whole.of(FILES[1])
    for data in (whole.files[name][:100], None):
        outcome(whole, name, data, tmp_path / "spool")
        _, recovery = Spool.open(FileStorage(), str(tmp_path / "spool"), CONFIG)
        assert not recovery.damages


def test_discarded_records_that_are_damaged_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool, _ = Spool.open(FileStorage(), str(tmp_path), CONFIG)
    for entry in range(3):
        spool.append(*A, NOW_MS, None, value(entry))
    data = Path(spool.discard(A, 0, 3) or "").read_bytes()
    assert len(read_discarded(data)) == 3
    assert not caplog.records
    ends = [frame.end for frame in walk(0, data, may_be_torn=False) if isinstance(frame, Frame)]
    flipped = bytearray(data)
    flipped[ends[0] + 30] ^= 1
    for damaged, left in ((b"", 0), (data[: ends[1]], 2), (data[: ends[1] + 20], 2), (bytes(flipped), 2)):
        caplog.clear()
        assert len(read_discarded(damaged)) == left
        assert any(one.levelname == "ERROR" for one in caplog.records)
