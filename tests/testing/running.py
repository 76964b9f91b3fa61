"""pytest in a process of its own, with oncelog's plugin and as a user has it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

PLUGIN = "oncelog.pytest_plugin"
TIMEOUT_S = 300


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """An install from before there was a plugin has no entry point yet; a plugin that is named twice is an error."""
    installed = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", PLUGIN)
    # Others' plugins have nothing to do with it, and take their time to load.
    others = ("-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    return pytester.runpytest_subprocess(*plugin, *others, *arguments, timeout=TIMEOUT_S)
