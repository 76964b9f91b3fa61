"""Whole pages: well-formed, self-contained, and nothing that goes in becomes markup."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from oncelog.report import Section, page
from tests.report.conftest import one_of_everything

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></title></svg><script>alert(1)</script>",
    "]]> <!-- & &lt; &#x3c;script>",
    "\x00\x08\x1b[31m\ud800\ufffe",
    "`<b>`` ` <i>",
    "x" * 5_000,
]


class Reader(HTMLParser):
    """The tags and texts of a page, as a browser's tokenizer finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_page_is_well_formed(everything: list[Section]) -> None:
    root = ElementTree.fromstring(page("orders", everything, subtitle="today", footer="made by hand"))
    assert root.tag == "html"
    assert root.findtext("head/title") == "orders"
    assert len(root.findall(".//svg")) == 4


def test_a_page_loads_and_runs_nothing(everything: list[Section]) -> None:
    reader = Reader(page("orders", everything))
    assert not {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe", "object", "image", "use", "a"}
    for _, attributes in reader.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "style")}
    assert "url(" not in "".join(reader.texts)
    assert "@import" not in "".join(reader.texts)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_and_never_markup(name: str) -> None:
    hostile = page(name, [Section(name, one_of_everything(name))], subtitle=name, footer=name)
    harmless = page("a", [Section("a", one_of_everything("a"))], subtitle="a", footer="a")
    ElementTree.fromstring(hostile)
    hostile.encode()
    tags = {tag for tag, _ in Reader(hostile).tags}
    assert tags == {tag for tag, _ in Reader(harmless).tags}


def test_an_escaped_name_is_read_back_as_it_was() -> None:
    name = HOSTILE[0]
    root = ElementTree.fromstring(page(name, []))
    assert root.findtext("body/header/h1") == name


def test_every_picture_has_a_title_a_description_and_its_numbers_in_a_table(everything: list[Section]) -> None:
    root = ElementTree.fromstring(page("orders", everything))
    for figure in root.iter("figure"):
        (picture,) = figure.iter("svg")
        assert picture.get("role") == "img"
        assert picture.findtext("title")
        assert picture.findtext("desc")
        assert figure.find("details//table/tbody/tr") is not None


def test_every_section_is_named_by_its_heading(everything: list[Section]) -> None:
    root = ElementTree.fromstring(page("orders", [*everything, Section("more", ())]))
    headings = {heading.get("id"): heading.text for heading in root.iter("h2")}
    assert [headings[section.get("aria-labelledby")] for section in root.iter("section")] == ["orders", "more"]


def test_a_browser_shows_it(everything: list[Section], tmp_path: Path) -> None:
    """The only test that wants a browser, which is large: it is used where it is, and not fetched."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    (tmp_path / "page.html").write_text(page("orders", everything))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shot = tmp_path / "page.png"
    command = [chromium, *flags, f"--screenshot={shot}", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert shot.exists(), done.stderr
    assert shot.read_bytes().startswith(b"\x89PNG")
