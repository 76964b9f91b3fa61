"""Modules that are compiled behave as their sources do: their tests run on both forms."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.compiled import UNCOMPILED_VARIABLE, stale_extensions

ROOT = Path(__file__).parent.parent
COMPILED = ["delivery", "batch", "accumulator", "node_ring", "placement", "intake", "loop_future", "loop_intake"]


def test_no_extension_is_older_than_its_source() -> None:
    assert stale_extensions() == [], "run `make native`"


@pytest.mark.parametrize("name", COMPILED)
def test_this_session_tests_the_compiled_form(name: str) -> None:
    assert import_module(f"oncelog.client.{name}").__file__.endswith(".so"), "run `make native`"  # type: ignore[union-attr]


def test_the_sources_pass_the_same_tests_uncompiled() -> None:
    suites = [f"tests/client/test_{name}.py" for name in COMPILED]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.compiled", "-p", "no:cacheprovider", *suites],
        cwd=ROOT,
        env={**os.environ, UNCOMPILED_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5_000:] + ended.stderr[-2_000:]
