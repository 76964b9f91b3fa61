"""Files of a data folder, and of its metadata, that are well-formed and false: a start either goes on with all that was
there, or refuses with the name of the file, which the doctor names too. See `tests/log/test_false_files.py` for the
files of partitions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.end_offset_checkpoint import _line
from oncelog.controller.identity import FILE_NAME as IDENTITY_FILE
from oncelog.controller.identity import encode_id
from oncelog.doctor.repairs import Folder, RestoreEpochs
from oncelog.errors import OncelogError
from oncelog.log.checkpoints import encode_lines
from oncelog.log.inspection import Severity
from oncelog.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from oncelog.log.storage import FileStorage
from tests.doctor.test_checkup import NOW_MS, STAMP, contents, findings, folder, losses, open_broker

__all__ = ["folder"]

METADATA = "__cluster_metadata-0"
WRITTEN = (("orders", 0), ("orders", 1), ("paid", 0))
Forgeries = Iterator[tuple[str, bytes]]


def false_identity(content: bytes) -> Forgeries:
    lines = dict(line.split("=", 1) for line in content.decode().splitlines())
    for key, value in (
        ("cluster.id", "another"),
        ("cluster.id", "x\x1b[2J" * 100),
        ("node.id", "7"),
        ("node.id", "one"),
        ("node.id", "9" * 5000),
        ("directory.id", encode_id(UUID(int=7))),
        ("directory.id", "short"),
        ("version", "0"),
        ("version", "2"),
    ):
        changed = lines | {key: value}
        yield f"{key}={value[:9]}", "".join(f"{name}={text}\n" for name, text in changed.items()).encode()
        left = {name: text for name, text in lines.items() if name != key}
        yield f"without {key}", "".join(f"{name}={text}\n" for name, text in left.items()).encode()


def false_end(content: bytes) -> Forgeries:
    """Each line has the checksum that it should have."""
    for words in (
        ("end", 10**6, 1),
        ("end", 1, 1),
        ("end", -5, 1),
        ("end", "many", "x"),
        ("end", 10**30, 10**30),
        ("foreign", 10**6),
        ("foreign", -6),
        ("foreign", "x"),
        ("identity", "another", encode_id(UUID(int=7)), 1),
        ("identity", "another", "short", "x"),
    ):
        yield " ".join(map(str, words)), content + _line(*words)
    yield "nothing", b""


def false_quorum(content: bytes) -> Forgeries:
    for leader_id, epoch, voters in (
        (1, 1, ()),
        (1, 2**29, ()),
        (1, 2**31 - 1, ()),
        (1, 10**30, ()),
        (-1, 0, ()),
        (7, 3, ()),
        (1, 3, (1, 2, 3)),
        (-1, -1, ()),
    ):
        told = {"leaderId": leader_id, "leaderEpoch": epoch, "currentVoters": [{"voterId": each} for each in voters]}
        yield json.dumps(told), json.dumps(told).encode()


def false_epochs(content: bytes) -> Forgeries:
    for lines in ((), ("7 0",), ("2147483647 0",), ("1 0", "9 2"), ("1 1000000",), ("0 0", "1 1", "2 2")):
        yield str(lines), encode_lines(lines)


KINDS: dict[str, Callable[[bytes], Forgeries]] = {
    IDENTITY_FILE: false_identity,
    END_OFFSET_FILE: false_end,
    f"{METADATA}/quorum-state": false_quorum,
    f"{METADATA}/{EPOCHS_FILE}": false_epochs,
}


def start_with(folder: Path, name: str) -> str:
    """What a start makes of it, which the doctor foretells."""
    foretold = "\n".join(f"{each.finding.path} {each.finding.problem}" for each in losses(folder))
    try:
        broker = open_broker(folder)
    except OncelogError as error:
        said = str(error)
        assert "oncelog doctor" in said or "use another data folder" in said, said
        assert said.isprintable(), said
        assert len(said) < 1200, said
        for internal in ("invalid literal", "KeyError", "ValueError", "codec", "unpack", "not a 16-char"):
            assert internal not in said, said
        return "right" if name.rpartition("/")[2] in said and name.rpartition("/")[2] in foretold else said
    found = {(topic, index): broker.partition(topic, index).log_end_offset for topic, index in WRITTEN}
    broker.stop(NOW_MS)
    if foretold:
        return f"it starts, and the doctor says: {foretold}"
    return "right" if set(found.values()) == {1} else str(found)


@pytest.mark.parametrize("name", KINDS)
def test_nothing_false_is_believed(folder: Path, tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = folder / name
    content = path.read_bytes() if path.exists() else b""
    verdicts = {}
    for what, changed in KINDS[name](content):
        copy = tmp_path_factory.mktemp("copy") / "data"
        shutil.copytree(folder, copy)
        (copy / name).write_bytes(changed)
        verdicts[what] = start_with(copy, name)
    assert {what: found for what, found in verdicts.items() if found != "right"} == {}


def test_the_doctor_blames_false_epochs_and_writes_them_again(folder: Path) -> None:
    """Not the records: all of them are good."""
    path = folder / "paid-0" / EPOCHS_FILE
    path.write_bytes(encode_lines(["7 0"]))
    (found,) = findings(folder)
    assert (found.finding.path, found.finding.severity) == (str(path), Severity.REPAIRED_AT_START)
    assert "`--repair`" in found.finding.remedy
    assert isinstance(found.repair, RestoreEpochs)
    found.repair.perform(Folder(FileStorage(), str(folder), STAMP, NOW_MS, UUID))
    assert path.read_bytes() == encode_lines(["0 0"])
    assert encode_lines(["7 0"]) in contents(folder).values(), "what was there is kept"
    assert findings(folder) == []
