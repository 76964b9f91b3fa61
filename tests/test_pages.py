"""Pages cannot promise what no test shows: every test that they name exists, and their examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import oncelog
from tests.support import parts

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {name: (DOCS / name).read_text() for name in ("producer.md", "consumer.md", "exactly-once.md")}
COMMAND_TIMEOUT_S = 60
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def promises_of(page: str) -> list[str]:
    table = PAGES[page].partition("<!-- promises: begin -->")[2].partition("<!-- promises: end -->")[0]
    return table.strip().splitlines()[2:]


def examples_of(page: str) -> list[str]:
    return blocks_of(PAGES[page], "python")


def blocks_of(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def first_screen() -> str:
    return (ROOT / "README.md").read_text().partition("\n## ")[0]


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


def test_the_first_screen_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its examples one after the other, as a stranger pastes them, then its commands. Spark's has a test of its own."""
    monkeypatch.chdir(tmp_path)
    brought_along: list[str] = []

    def run_my_tests(bootstrap_servers: str) -> None:
        brought_along.append(bootstrap_servers)

    session: dict[str, object] = {"run_my_tests": run_my_tests}
    with oncelog.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        for number, example in enumerate(blocks_of(first_screen(), "python"), 1):
            if "oncelog.spark" not in example:
                here = example.replace("127.0.0.1:9092", broker.bootstrap_servers)
                exec(compile(here, f"README.md, example {number}", "exec"), session)
        session.clear()  # its clients, before the broker is gone
        said = capsys.readouterr().out
        read = [
            subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True).stdout
            for command in reading_commands(broker.bootstrap_servers)
        ]
    assert "RecordMetadata(topic='orders', partition=0, offset=0" in said
    assert "records=1, outputs=1" in said
    assert "done=1" in said
    assert len(brought_along) == 1
    assert [lines.split() for lines in read] == [["paid"] * 3, ["paid"]]


def reading_commands(bootstrap_servers: str) -> list[list[str]]:
    """Those of the last console, on this broker and with the programs that are here."""
    programs = {"kcat": str(parts.required(parts.kcat)), "venv/bin/oncelog": f"{Path(sys.executable).parent}/oncelog"}
    *_, console = blocks_of(first_screen(), "console")
    lines = [line.partition("#")[0].removeprefix("$ ").split() for line in console.splitlines()]
    kcat, consume = [[programs[program], *arguments] for program, *arguments in lines]
    return [
        [word.replace("127.0.0.1:9092", bootstrap_servers) for word in kcat],
        [*consume, "-b", bootstrap_servers],
    ]


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
