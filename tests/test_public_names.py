"""What is public is under `oncelog`: each error that a page names, each module that they mention, and nothing else."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oncelog
from oncelog import errors

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_TIMEOUT_S = 60


@functools.cache
def exceptions() -> set[str]:
    """The names of all our exception classes that a program can meet, read from the source: importing all of it takes
    too long. The command line's own stay there."""
    bases: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        if "cli" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {
                    base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases
                }
                bases.setdefault(node.name, set()).update(names)
    found = {"Exception", "OncelogError"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return found & bases.keys()


def test_every_error_that_a_page_names_can_be_caught_by_that_name() -> None:
    ours = exceptions()
    words = {word for page in PAGES for word in re.findall(r"\b[A-Z]\w+\b", page.read_text())}
    named = sorted(words & ours)
    assert len(named) > 40
    missing = [name for name in named if name not in dir(oncelog)]
    assert not missing, "add them to oncelog/__init__.py"
    assert all(issubclass(getattr(oncelog, name), Exception) for name in named)


def test_every_error_that_a_docstring_of_a_public_class_promises() -> None:
    ours = exceptions()
    for name in dir(oncelog):
        value = getattr(oncelog, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            for _, call in inspect.getmembers(value, inspect.isfunction):
                promised = re.findall(r"Raises ([^.:]+)", inspect.getdoc(call) or "")
                words = {word for text in promised for word in re.findall(r"\b[A-Z]\w+\b", text)} & ours
                assert words <= {*dir(oncelog)}, f"{name}.{call.__name__}"


def test_any_error_of_kafkas_protocol() -> None:
    assert oncelog.RebalanceInProgress is errors.RebalanceInProgress
    for name in ("MAX_LONG", "error_for_code", "Enum", "Nothing"):
        with pytest.raises(AttributeError, match=f"module 'oncelog' has no attribute '{name}'"):
            getattr(oncelog, name)


def test_dir_shows_what_is_public_and_no_more() -> None:
    assert dir(oncelog) == sorted(oncelog.__all__)
    assert not {"Any", "TYPE_CHECKING", "annotations", "import_module", "client", "wire"} & {*dir(oncelog)}
    assert all(hasattr(oncelog, name) for name in dir(oncelog))


@pytest.mark.real
def test_modules_are_there_after_a_plain_import() -> None:
    program = "import oncelog; print(oncelog.once.Runner.__name__, oncelog.errors.InvalidConfig.__name__)"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True
    )
    assert said.stdout == "Runner InvalidConfig\n"


@pytest.mark.real
def test_names_need_no_extra_package() -> None:
    """Errors of Spark and of databases can be named where neither is installed."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'sqlalchemy', 'pyarrow', 'psycopg']))\n"
        "import oncelog; print(len([getattr(oncelog, name) for name in dir(oncelog)]) == len(dir(oncelog)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    assert said.stdout == "True\n", said.stderr
