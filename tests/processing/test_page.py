"""docs/process.md cannot promise what no test shows: its examples run, in order, and say what it says they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from tests.test_pages import TEST_ID, is_defined

PAGE = (Path(__file__).parent.parent.parent / "docs" / "process.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SAID = re.compile(r"^print\(.*\)  +# (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """Of a broker that nobody else writes orders to."""
    with oncelog.Broker() as broker:
        yield broker.bootstrap_servers


def test_the_examples_run(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == 4
    for example in EXAMPLES:
        exec(compile(example.replace("127.0.0.1:9092", bootstrap_servers), "process.md", "exec"), {})
        said = capsys.readouterr().out.strip()
        promised = SAID.search(example)
        if promised is not None:
            assert said == promised[1]
        else:
            assert "records=1000, outputs=1000" in said


def test_every_promise_names_a_test_that_exists() -> None:
    table = PAGE.partition("<!-- promises: begin -->")[2].partition("<!-- promises: end -->")[0]
    rows = table.strip().splitlines()[2:]
    assert len(rows) > 10
    for row in rows:
        named = TEST_ID.findall(row)
        assert named, row
        for path, name in named:
            assert is_defined(path, name), f"{path} has no {name}"
