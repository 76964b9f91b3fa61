"""Every code block of every page runs as printed, in the order of the page, all on one broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from tests.pages.blocks import CODE, PROMPT, Block, Reader, blocks_of
from tests.support import parts
from tests.support.ports import unused_port
from tests.test_pages import is_defined

ROOT = Path(__file__).parent.parent.parent
PRINTED = "127.0.0.1:9092"
PROXY = "127.0.0.1:19092"

# Pages whose blocks need more than a broker, and the tests that run them.
ELSEWHERE = {
    "README.md": "tests/test_pages.py::test_the_first_screen_of_the_readme_runs",
    "doctor.md": "tests/cli/test_doctor.py::test_the_page_runs_as_printed",
    "effects-once.md": "tests/once/test_page.py::test_the_examples_run",
    "spark.md": "tests/spark/test_page.py::test_every_block_runs_as_printed_and_a_second_time",
    "spark-tools.md": "tests/spark/tools/test_page.py::test_the_examples_run",
    "testing.md": "tests/testing/test_page.py::test_all_of_the_page_but_the_other_conftest",
}
OWN_BROKER = "getting-started.md"
"""Its first command starts one."""

INDEX = ROOT / "docs" / "README.md"
PAGES = {
    page.name: page for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))] if page != INDEX
}
RUN_HERE = [
    name
    for name, page in PAGES.items()
    if name not in ELSEWHERE
    and not name.startswith("spark")  # tests/spark has a session for them
    and any(block.language in CODE and not block.not_run for block in blocks_of(page))
]


def test_the_index_names_every_page_and_has_nothing_to_run() -> None:
    text = INDEX.read_text()
    assert [page.name for page in INDEX.parent.glob("*.md") if page != INDEX and f"]({page.name})" not in text] == []
    assert [path for path in re.findall(r"]\(([^)#]+)", text) if not (INDEX.parent / path).exists()] == []
    assert list(blocks_of(INDEX)) == []


def of(name: str) -> list[Block]:
    return [block for block in blocks_of(PAGES[name]) if block.language in CODE]


@pytest.fixture(scope="module")
def pages_broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as started:
        yield started


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "kcat").symlink_to(parts.required(parts.kcat))
    return folder


@pytest.mark.real
@pytest.mark.parametrize("name", RUN_HERE)
def test_every_block_runs_as_printed(
    name: str, pages_broker: oncelog.Broker, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = f"127.0.0.1:{unused_port()}" if name == OWN_BROKER else pages_broker.bootstrap_servers
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", here)
    shared = [topic for topic in _topics(pages_broker) if _mentions(name, topic)]
    assert shared == [], "another page has written to them: what this one shows would not be what its reader sees"
    with Reader(tmp_path, {PRINTED: here, PROXY: f"127.0.0.1:{unused_port()}"}, programs) as reader:
        for block in of(name):
            if not block.not_run:
                reader.run(name, block)


def _topics(broker: oncelog.Broker) -> list[str]:
    with oncelog.Admin(broker.bootstrap_servers) as admin:
        return [topic.name for topic in admin.list_topics() if not topic.is_internal]


def _mentions(name: str, topic: str) -> bool:
    word = re.compile(rf"(?<![\w.-]){re.escape(topic)}(?![\w-])")
    return any(word.search(block.text) for block in of(name) if not block.not_run)


@pytest.mark.parametrize(("name", "test"), ELSEWHERE.items())
def test_what_is_run_elsewhere_is(name: str, test: str) -> None:
    path, _, function = test.partition("::")
    assert is_defined(path, function)
    assert name in (ROOT / path).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_what_looks_like_a_command_is_in_a_block_that_is_run(name: str) -> None:
    for block in blocks_of(PAGES[name]):
        if block.language not in CODE:
            assert not re.search(rf"^{re.escape(PROMPT)}", block.text, re.M), f"line {block.line}: name it `console`"
