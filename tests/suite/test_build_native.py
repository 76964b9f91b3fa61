"""A compiled part is taken from the cache only if everything that it was made of is the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from setuptools import Extension

from tools import build_native
from tools.build_native import built_as, forget_the_oldest, kept_as, reuse, tools_hash

PART = Extension("oncelog.room.part", ["src/oncelog/room/part.py"])
SOURCES = {
    "setup.py": "FLAGS = ()",
    "src/oncelog/room/part.py": "a = 1",
    "src/oncelog/room/part.pxd": "cdef class A: pass",
    "src/oncelog/other/other.pxd": "cdef class B: pass",
}

pytestmark = pytest.mark.real  # the compiler is asked for its version


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def _kept(tree: Path) -> Path:
    return kept_as(PART, tools_hash(tree), tree, tree / "cache")


def test_the_same_sources_have_the_same_place(tree: Path) -> None:
    assert _kept(tree) == _kept(tree)


@pytest.mark.parametrize("name", SOURCES)
def test_a_change_of_anything_that_a_part_is_made_of_is_another_place(tree: Path, name: str) -> None:
    before = _kept(tree)
    (tree / name).write_text(SOURCES[name] + "\n# changed")
    assert _kept(tree) != before


@pytest.mark.parametrize("variable", ["CC", "CFLAGS"])
def test_other_options_are_another_place(tree: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    before = _kept(tree)
    monkeypatch.setenv(variable, "-O0")
    assert _kept(tree) != before


def test_what_is_reused_is_newer_than_its_sources(tree: Path) -> None:
    kept, built = tree / "kept.so", built_as(PART, tree)
    kept.write_bytes(b"compiled")
    reuse(kept, built)
    source = tree / "src/oncelog/room/part.py"
    os.utime(built, (0, 0))
    reuse(kept, built)
    assert built.read_bytes() == b"compiled"
    assert built.stat().st_mtime >= source.stat().st_mtime


def test_those_used_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_native, "MAX_KEPT", 2)
    for second, name in enumerate(("oldest", "older", "newest")):
        (tmp_path / f"{name}.so").touch()
        os.utime(tmp_path / f"{name}.so", (second, second))
    forget_the_oldest(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"older", "newest"}
