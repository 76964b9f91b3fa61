"""docs/testing.md: every test on it passes as printed, together in one run, and so does what the recipes promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testing.running import run_pytest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.real

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"
BLOCKS = re.compile(r"^```python\n# (\S+?)(, instead)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFTEST = "conftest.py"
AS_SUITES_DO = """
import os

def test_fixtures_and_variable(bootstrap_servers, kafka_container, oncelog_bootstrap):
    assert bootstrap_servers == kafka_container.get_bootstrap_server() == oncelog_bootstrap
    assert os.environ["KAFKA_BOOTSTRAP_SERVERS"] == oncelog_bootstrap
"""
AT_IMPORT = """
import os, oncelog

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]

def test_variable():
    with oncelog.Admin(SERVERS) as admin:
        assert admin.list_topics() == []
"""


def blocks() -> dict[str, str]:
    return {name + instead: text for name, instead, text in BLOCKS.findall(PAGE.read_text())}


def test_all_of_the_page_but_the_other_conftest(pytester: pytest.Pytester) -> None:
    printed = blocks()
    assert len(printed) == len(re.findall("^```python$", PAGE.read_text(), re.MULTILINE)), "a block without a file name"
    printed.pop(f"{CONFTEST}, instead")
    suite = pytester.mkdir("suite_of_another")
    (suite / CONFTEST).write_text(printed.pop(CONFTEST))
    (suite / "test_recipe.py").write_text(AS_SUITES_DO)
    for name, text in printed.items():
        (pytester.path / name).write_text(text)
    expected = sum(text.count("def test_") for text in printed.values()) + 1
    run_pytest(pytester, "--strict-markers").assert_outcomes(passed=expected)


def test_the_other_conftest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    pytester.makeconftest(blocks()[f"{CONFTEST}, instead"])
    pytester.makepyfile(AT_IMPORT)
    run_pytest(pytester).assert_outcomes(passed=1)
