"""Real tests that fail are run once more, alone; what then passes is reported as flaky, and never hidden.

A real test shares its machine with whatever else runs there, so a failure may be the machine's and not the code's. With
`--repeat-real` each real test that failed (or whose worker crashed, or whose time was up) is run again when all others
have ended: in a process of its own, with fixtures of its own, nothing beside it. If it fails again, it failed. If it
passes, it counts as `flaky` in pytest's closing line, its first failure is printed in full, and the last lines of the
run say `FLAKY: test (why it failed first)`. With `--strict-real` such a run fails all the same.

A deterministic test is never repeated. Nor is anything when more than `MAX_REPEATED` real tests failed, or a run was
broken off: that is no bad luck.

The process that repeats is the one that hands out the tests (pytest-xdist's controller). It does not collect, so the
workers leave it the list of real tests in a file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.kinds import REAL, kind_of

MAX_REPEATED = 10
# Above the timeout of any single test in pyproject.toml, which is to end it first.
REPEAT_TIMEOUT_S = 1_000.0
FLAKY = "flaky"
FAILED_FIRST = ("failed", "error")
_LIST_KEY = "real_tests_path"
_PASSED = re.compile(r"^(=+ )?1 passed\b", re.MULTILINE)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("real tests")
    group.addoption("--repeat-real", action="store_true", help="run real tests that failed once more, alone")
    group.addoption("--strict-real", action="store_true", help="fail although they passed when run alone")


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def register(config: pytest.Config) -> None:
    if is_worker(config):
        config.pluginmanager.register(_Lister(Path(config.workerinput[_LIST_KEY])), "real-tests-lister")
        return
    known = RealTests(Path(tempfile.mkdtemp(prefix="oncelog-kinds-")) / "real.json")
    config.pluginmanager.register(known, "real-tests")
    if config.getoption("--repeat-real"):
        config.pluginmanager.register(Repeats(config, known), "real-tests-repeats")


def real_tests(config: pytest.Config) -> RealTests:
    known = config.pluginmanager.getplugin("real-tests")
    assert isinstance(known, RealTests)
    return known


class _Lister:
    """In a worker: writes down which of the tests are real. All workers write the same."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        unfinished = self._path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps([item.nodeid for item in items if kind_of(item) == REAL]))
        unfinished.rename(self._path)


class RealTests:
    """In the process that the user started: which tests are real."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: frozenset[str] | None = None

    def __contains__(self, nodeid: str) -> bool:
        if self._ids is None:
            self._ids = frozenset(json.loads(self._path.read_text())) if self._path.exists() else frozenset()
        return nodeid in self._ids

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_LIST_KEY] = str(self._path)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._ids = frozenset(item.nodeid for item in items if kind_of(item) == REAL)

    def pytest_unconfigure(self) -> None:
        shutil.rmtree(self._path.parent, ignore_errors=True)


@dataclass(frozen=True)
class Repeated:
    """One real test that failed, and what became of it alone."""

    nodeid: str
    first: pytest.TestReport
    passed: bool
    output: str

    @property
    def line(self) -> str:
        return f"FLAKY: {self.nodeid} ({last_line(self.first)})"


class Repeats:
    def __init__(self, config: pytest.Config, known: RealTests) -> None:
        self._config = config
        self._known = known
        self._is_strict = bool(config.getoption("--strict-real"))
        self._failed: dict[str, list[pytest.TestReport]] = {}
        self._repeated: list[Repeated] = []
        self._why_not: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, []).append(report)

    # Innermost, and after all fixtures of this process and all workers have ended; pytest's summary comes after it.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        real = [nodeid for nodeid in self._failed if nodeid in self._known]
        if not real or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        if len(real) > MAX_REPEATED:
            self._why_not = f"{len(real)} real tests failed, more than {MAX_REPEATED}: none was repeated"
            return
        self._repeated = [self._repeat(nodeid) for nodeid in real]
        flaky = {repeated.nodeid for repeated in self._repeated if repeated.passed}
        if self._is_strict:
            return
        self._recount(flaky)
        if flaky == set(self._failed):
            session.exitstatus = pytest.ExitCode.OK

    def _repeat(self, nodeid: str) -> Repeated:
        self._say(f"\nalone, once more: {nodeid}")
        code, output = run_alone(nodeid, self._config)
        return Repeated(nodeid, self._failed[nodeid][0], code == 0 and _PASSED.search(output) is not None, output)

    def _recount(self, flaky: set[str]) -> None:
        """A test that is flaky neither failed nor passed, in pytest's own closing line."""
        reporter = self._reporter
        if reporter is None:
            return
        for category in (*FAILED_FIRST, "passed"):  # it has passed as well if only its fixtures failed, at their end
            counted = reporter.stats.get(category, [])
            reporter.stats[category] = [report for report in counted if getattr(report, "nodeid", None) not in flaky]
            if not reporter.stats[category]:
                del reporter.stats[category]
        if flaky:
            reporter.stats[FLAKY] = [self._failed[nodeid][0] for nodeid in sorted(flaky)]
            reporter._set_main_color()

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for repeated in self._repeated:
            if repeated.passed and not self._is_strict:  # else pytest shows the first failure itself
                terminalreporter.write_sep("=", f"FLAKY, how it failed first: {repeated.nodeid}", yellow=True)
                for report in self._failed[repeated.nodeid]:
                    terminalreporter._outrep_summary(report)
            if not repeated.passed:
                terminalreporter.write_sep("=", f"FAILED AGAIN, alone: {repeated.nodeid}", red=True)
                terminalreporter.write_line(repeated.output)

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_sessionfinish")
    def pytest_sessionfinish_last_words(self, session: pytest.Session) -> Generator[None, Any, Any]:
        result = yield
        for repeated in self._repeated:
            if repeated.passed:
                self._say(repeated.line)
        if self._why_not is not None:
            self._say(self._why_not)
        return result

    def _say(self, line: str) -> None:
        if self._reporter is not None:
            self._reporter.write_line(line)

    @property
    def _reporter(self) -> Any:
        return self._config.pluginmanager.getplugin("terminalreporter")


def last_line(report: pytest.TestReport) -> str:
    """What the failure says in one line: the first of its message, else the last of the whole report."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).strip().partition("\n")[0]
    lines = [line for line in report.longreprtext.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "without a word"


def run_alone(nodeid: str, config: pytest.Config, timeout_s: float = REPEAT_TIMEOUT_S) -> tuple[int, str]:
    """The exit code of pytest, and all it said. `-m real` makes sure that nothing else is ever repeated."""
    command = [sys.executable, "-m", "pytest", nodeid, "-m", REAL, "-p", "no:cacheprovider", "-n", "0"]
    brokers = config.getoption("--brokers", None)
    command += [f"--brokers={brokers}"] if brokers else []
    with subprocess.Popen(
        command,
        cwd=config.rootpath,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nit did not end within {timeout_s:g} s"
    return process.returncode, output
