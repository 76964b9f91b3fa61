"""Pages cannot promise what no test shows: every test that they name exists, and their examples run."""

from __future__ import annotations

import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import oncelog

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {name: (DOCS / name).read_text() for name in ("producer.md", "consumer.md", "exactly-once.md")}
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def promises_of(page: str) -> list[str]:
    table = PAGES[page].partition("<!-- promises: begin -->")[2].partition("<!-- promises: end -->")[0]
    return table.strip().splitlines()[2:]


def examples_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)


PROMISES = [(page, promise) for page in PAGES for promise in promises_of(page)]


def is_defined(path: str, name: str) -> bool:
    """Whether pytest finds a test of that name, without parameters; it may be one that a class has inherited."""
    try:
        return callable(attrgetter(name.replace("::", "."))(import_module(path[:-3].replace("/", "."))))
    except AttributeError:
        return False


@pytest.mark.parametrize(("page", "promise"), PROMISES, ids=range(len(PROMISES)))
def test_every_promise_names_a_test_that_exists(page: str, promise: str) -> None:
    named = TEST_ID.findall(promise)
    assert named, "a promise without a test is none"
    for path, name in named:
        assert name.rpartition("::")[2].startswith("test_")
        assert is_defined(path, name), f"{path} has no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_there_are_promises_and_examples(page: str) -> None:
    assert len(promises_of(page)) > 15
    assert len(examples_of(page)) >= 4


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with oncelog.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        for number, example in enumerate(examples_of(page), 1):
            here = example.replace("127.0.0.1:9092", broker.bootstrap_servers)
            exec(compile(here, f"{page}, example {number}", "exec"), {})


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors_of(found), f"{page.name} links to {target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("picture", sorted(DOCS.glob("pictures/*.svg")), ids=lambda picture: picture.stem)
def test_pictures_are_shown_and_can_be_read_in_the_dark(picture: Path) -> None:
    assert any(f"pictures/{picture.name}" in page.read_text() for page in DOCS.glob("*.md"))
    drawing = picture.read_text()
    assert ElementTree.fromstring(drawing).find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in drawing
