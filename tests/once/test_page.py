"""docs/effects-once.md cannot show what does not run: every example is run, in order, against real servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncelog.once.tables import COLUMNS
from tests.pages.blocks import Reader, blocks_of
from tests.support.postgres import PostgresServer
from tests.support.process import BrokerProcess
from tests.support.redis import RedisServer

PATH = Path(__file__).parent.parent.parent / "docs" / "effects-once.md"
PAGE = PATH.read_text()
EXAMPLES = [block.text for block in blocks_of(PATH) if block.language == "python"]
ORDERS = 3


def test_the_examples_run(
    oncelog_broker: BrokerProcess,
    postgres: PostgresServer,
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    here = {
        "127.0.0.1:9092": oncelog_broker.bootstrap,
        "6379": str(redis_server.port),
        "127.0.0.1:5432": f"127.0.0.1:{postgres.port}",
    }
    with Reader(tmp_path, here) as reader:
        for block in blocks_of(PATH):
            if block.language == "python":
                reader.run(PATH.name, block)
    said = capsys.readouterr().out
    runs = sum(example.count(".run(") for example in EXAMPLES)
    assert said.count(f"Tally(done={ORDERS}, repeated=0") == runs == 10, said


def test_there_are_examples_of_every_strategy() -> None:
    for name in (
        "MessageTable",
        "StateGuard",
        "Token",
        "RedisLeases",
        "Version",
        "DatabaseOffsets",
        "DeadLetter",
        "Worker",
    ):
        assert any(f"once.{name}(" in example for example in EXAMPLES), name


def test_every_column_is_named() -> None:
    for table, columns in COLUMNS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{table}`"))
        for column in re.findall(r"(?:^|, )([a-z_]+) (?:\{|[A-Z])", columns):
            assert column in row, f"{table}.{column}"
