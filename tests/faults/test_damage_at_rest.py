"""Every kind of file in a data folder, damaged in every way: what is damaged is put right or not served.

docs/durability.md shows the outcomes; `python -m tests.faults.damage_table` writes them there.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from oncelog.doctor.repairs import Folder
from oncelog.log.storage import FileStorage
from tests.broker.support import NOW_MS
from tests.faults.damage import (
    DAMAGES,
    KINDS,
    METADATA,
    FileKind,
    Scene,
    SeenPartition,
    build,
    copied,
    look,
    losses,
    open_desk,
    outcome,
)
from tests.faults.damage_table import header, printed, row, workshop_parent

MAX_REPAIRS = 10
"""One may bring to light what the next is for."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Thousands of warnings, all of them right."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=workshop_parent()))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def scene(place: Path) -> Scene:
    return build(place)


def test_nothing_is_wrong_with_what_is_not_damaged(scene: Scene, place: Path) -> None:
    for source in (scene.stopped, scene.killed):
        assert outcome(scene, copied(source, place / "workshop"), "") == "recovered"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title.replace("`", ""))
def test_damage_is_not_served(scene: Scene, place: Path, kind: FileKind) -> None:
    line, served = row(scene, place / "workshop", kind)
    assert not served, "\n".join(served)
    assert line in printed(), "the page says something else: run `python -m tests.faults.damage_table`"


def test_every_kind_of_file_is_in_the_table(scene: Scene) -> None:
    assert printed().startswith(header())
    assert printed().count("\n") == 2 + len(KINDS)
    suffixes = {Path(name).suffix or Path(name).name for kind in KINDS for name in kind.files(scene.stopped)}
    there = [path for path in scene.stopped.rglob("*") if path.is_file() and not path.name.endswith(".deleted")]
    assert {path.suffix or path.name for path in there} <= suffixes


REPAIRED = [
    ("meta.properties", "deleted"),
    (METADATA, "deleted"),
    (f"{METADATA}/*.log", "cut"),
    (f"{METADATA}/*.log", "an older version"),
    ("orders-0", "deleted"),
    ("orders-0/*.log", "deleted"),
    ("prices-0/*.log", "emptied"),
    ("newest:orders-0/*.log", "cut"),
]


@pytest.mark.parametrize(("pattern", "column"), REPAIRED, ids=lambda part: part.replace("*", ""))
def test_what_the_doctor_repairs_is_served(scene: Scene, place: Path, pattern: str, column: str) -> None:
    """All topics are there, perhaps even one whose deletion is lost, and all of their partitions; no producer id is
    given out twice."""
    (name,) = FileKind("", (pattern,)).files(scene.stopped)
    folder = copied(scene.stopped, place / "workshop")
    assert DAMAGES[column][-1](folder / name, [older / name for older in scene.older])
    assert losses(folder)
    for number in range(MAX_REPAIRS):
        repairs = [each.repair for each in losses(folder) if each.repair is not None]
        if not repairs:
            break
        repairs[0].perform(Folder(FileStorage(), str(folder), f"repair-{number}", NOW_MS, uuid4))
    assert losses(folder) == []
    seen = look(open_desk(folder), scene)
    assert set(scene.right.topics) <= set(seen.topics)
    for partition, right in scene.right.partitions.items():
        found = seen.partitions[partition]
        assert isinstance(found, SeenPartition), f"{partition}: {found}"
        if str(partition) not in name:
            assert found == right
