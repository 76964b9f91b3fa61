"""Pages cannot promise what no test shows: every test that they name exists, and their examples run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import oncelog

ROOT = Path(__file__).parent.parent
PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("producer.md", "consumer.md")}
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def promises_of(page: str) -> list[str]:
    table = PAGES[page].partition("<!-- promises: begin -->")[2].partition("<!-- promises: end -->")[0]
    return table.strip().splitlines()[2:]


def examples_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)


PROMISES = [(page, promise) for page in PAGES for promise in promises_of(page)]
EXAMPLES = [(page, example) for page in PAGES for example in examples_of(page)]


def defined_in(path: str) -> set[str]:
    """The tests of a file as pytest names them, without parameters."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("page", "promise"), PROMISES, ids=range(len(PROMISES)))
def test_every_promise_names_a_test_that_exists(page: str, promise: str) -> None:
    named = TEST_ID.findall(promise)
    assert named, "a promise without a test is none"
    for path, name in named:
        assert name.rpartition("::")[2].startswith("test_")
        assert name in defined_in(path), f"{path} has no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_there_are_promises_and_examples(page: str) -> None:
    assert len(promises_of(page)) > 15
    assert len(examples_of(page)) >= 4


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_run(page: str, example: str) -> None:
    with oncelog.Broker() as broker:
        exec(compile(example.replace("127.0.0.1:9092", broker.bootstrap_servers), page, "exec"), {})
