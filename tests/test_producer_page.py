"""docs/producer.md cannot promise what no test shows: every test that it names exists, and its examples run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import oncelog

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "producer.md").read_text()
PROMISES = PAGE.partition("<!-- promises: begin -->")[2].partition("<!-- promises: end -->")[0].strip().splitlines()[2:]
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def defined_in(path: str) -> set[str]:
    """The tests of a file as pytest names them, without parameters."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("promise", PROMISES, ids=lambda line: line.split("|")[1].strip())
def test_every_promise_names_a_test_that_exists(promise: str) -> None:
    named = TEST_ID.findall(promise)
    assert named, "a promise without a test is none"
    for path, name in named:
        assert name.rpartition("::")[2].startswith("test_")
        assert name in defined_in(path), f"{path} has no {name}"


def test_there_are_promises_and_examples() -> None:
    assert len(PROMISES) > 20
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_run(example: str) -> None:
    with oncelog.Broker() as broker:
        exec(compile(example.replace("127.0.0.1:9092", broker.bootstrap_servers), "producer.md", "exec"), {})
