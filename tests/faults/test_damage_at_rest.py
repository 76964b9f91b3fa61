"""Every kind of file in a data folder, damaged in every way: what is damaged is put right or not served.

docs/durability.md shows the outcomes; `python -m tests.faults.damage_table` writes them there.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.damage import KINDS, FileKind, Scene, build, copied, outcome
from tests.faults.damage_table import header, printed, row, workshop_parent


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
        assert outcome(scene, copied(source, place / "workshop"), "") == "right"


PENDING = [kind for kind in KINDS if kind.title == "`.log`, sealed"]
"""No checksum covers the offset and the leader epoch of a batch: where compaction left gaps, nothing can tell."""


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in PENDING], ids=lambda kind: kind.title.replace("`", "")
)
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
