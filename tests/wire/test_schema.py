from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from oncelog.wire.schema import load_schema
from oncelog.wire.versions import NO_VERSIONS, VersionRange
from tests.support import parts

ROOT = Path(__file__).parent.parent.parent
SCHEMAS = ROOT / "src" / "oncelog" / "wire" / "schemas"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_schemas", ROOT / "tools" / "generate_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.kafka
def test_the_definitions_are_what_the_generator_makes_of_kafkas_jars() -> None:
    parts.required(parts.kafka_libs)
    generated = generator().generate(Path(parts.kafka_libs()))
    assert generated == {path.stem: path.read_text() for path in SCHEMAS.glob("*.json")}


@pytest.mark.parametrize(
    ("name", "snake"),
    [("TopicId", "topic_id"), ("ISRNodes", "isr_nodes"), ("GroupIDs", "group_ids"), ("KRaftVersion", "kraft_version")],
)
def test_names_become_snake_case(name: str, snake: str) -> None:
    assert generator().snake_case(name) == snake


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_every_definition_loads(path: Path) -> None:
    schema = load_schema(path.stem)
    assert schema.name == path.stem
    assert schema.valid.lowest <= schema.valid.highest
    for field in schema.fields:
        field.default()


def test_version_ranges() -> None:
    assert VersionRange.parse("3") == VersionRange(3, 3)
    assert VersionRange.parse("0-12") == VersionRange(0, 12)
    assert VersionRange.parse("9+").includes(32767)
    assert VersionRange.parse("none") == VersionRange.parse(None) == NO_VERSIONS
    assert not NO_VERSIONS.includes(0)
    assert VersionRange(0, 5).overlap(VersionRange(3, 9)) == VersionRange(3, 5)
    assert VersionRange(0, 2).overlap(VersionRange(3, 9)) is None
    assert (str(VersionRange(1, 1)), str(VersionRange(0, 3))) == ("1", "0-3")
