"""`--repeat-real` on tiny suites: what is repeated, what counts as flaky, and what a run ends with."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repeats import MAX_REPEATED

HOME = Path(__file__).parent.parent.parent
CONFTEST = """
from pathlib import Path
from tests.support import kinds, lanes, repeats

def pytest_addoption(parser):
    repeats.add_options(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "deterministic: x")
    config.addinivalue_line("markers", "real: x")
    config.pluginmanager.register(kinds.Kinds(), "kinds")
    repeats.register(config)

def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: lanes.order_of(Path(item.path.name), kinds.kind_of(item) == kinds.REAL))

def pytest_xdist_make_scheduler(config, log):
    return lanes.Lanes(config, log, "suite", repeats.real_tests(config))
"""
HEAD = """
import os, signal, time
from pathlib import Path
import pytest

TRIES = Path(__file__).parent / "tries"

def tries():
    with TRIES.open("a") as file:
        file.write("x")
    return TRIES.stat().st_size
"""
FLAKY = """
@pytest.mark.real
def test_moody():
    assert tries() > 1, "not the first time"
"""
GREEN = """
def test_green():
    pass
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    lines: list[str]
    tries: int

    @property
    def closing(self) -> str:
        """What pytest says of the whole run, without how long it took."""
        found = [line for line in self.lines if re.search(r" in [\d.]+s", line) and line.startswith("=")]
        return found[-1].strip("= ").partition(" in ")[0]

    @property
    def flaky(self) -> list[str]:
        return [line for line in self.lines if line.startswith("FLAKY: ")]


def run(folder: Path, *tests: str, workers: int = 0, options: tuple[str, ...] = ("--repeat-real",)) -> Outcome:
    suite = folder / "suite"
    suite.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (suite / "test_it.py").write_text(HEAD + "".join(tests))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "suite", "-n", str(workers), "--dist", "loadfile", *options],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOME), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    tries = suite / "tries"
    return Outcome(done.returncode, done.stdout.splitlines(), tries.stat().st_size if tries.exists() else 0)


workers = pytest.mark.parametrize("workers", [0, 2])


@workers
def test_all_pass(tmp_path: Path, workers: int) -> None:
    outcome = run(tmp_path, GREEN, "@pytest.mark.real\ndef test_real():\n    time.sleep(0)\n", workers=workers)
    assert (outcome.code, outcome.closing) == (0, "2 passed")
    assert outcome.flaky == []


@workers
def test_what_passes_alone_is_flaky_and_its_failure_is_shown(tmp_path: Path, workers: int) -> None:
    outcome = run(tmp_path, GREEN, FLAKY, workers=workers)
    assert outcome.code == 0
    assert outcome.closing == "1 passed, 1 flaky"
    assert outcome.lines[-1] == "FLAKY: suite/test_it.py::test_moody (AssertionError: not the first time)"
    assert any(line.endswith('assert tries() > 1, "not the first time"') for line in outcome.lines)
    assert outcome.tries == 2


def test_strict_fails_and_still_says_what_is_flaky(tmp_path: Path) -> None:
    outcome = run(tmp_path, GREEN, FLAKY, options=("--repeat-real", "--strict-real"))
    assert outcome.code == 1
    assert outcome.closing == "1 failed, 1 passed"
    assert len(outcome.flaky) == 1


@workers
def test_what_fails_twice_failed(tmp_path: Path, workers: int) -> None:
    outcome = run(tmp_path, "@pytest.mark.real\ndef test_broken():\n    assert tries() > 9, 'never'\n", workers=workers)
    assert (outcome.code, outcome.closing, outcome.tries) == (1, "1 failed", 2)
    assert outcome.flaky == []
    assert any(line.startswith("=") and "FAILED AGAIN, alone" in line for line in outcome.lines)


def test_one_that_is_flaky_does_not_excuse_one_that_is_not(tmp_path: Path) -> None:
    outcome = run(tmp_path, FLAKY, "@pytest.mark.real\ndef test_broken():\n    assert not TRIES\n")
    assert (outcome.code, outcome.closing) == (1, "1 failed, 1 flaky")
    assert len(outcome.flaky) == 1


@workers
def test_a_deterministic_test_is_never_repeated(tmp_path: Path, workers: int) -> None:
    outcome = run(tmp_path, FLAKY.replace("@pytest.mark.real", "@pytest.mark.deterministic"), workers=workers)
    assert (outcome.code, outcome.closing, outcome.tries) == (1, "1 failed", 1)


def test_a_worker_that_dies_is_a_failure_of_its_test_alone(tmp_path: Path) -> None:
    dies = "@pytest.mark.real\ndef test_dies():\n    if tries() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
    others = "".join(f"@pytest.mark.real\ndef test_{name}():\n    pass\n" for name in "abcd")
    outcome = run(tmp_path, GREEN, dies, others, workers=2)
    assert (outcome.code, outcome.closing, outcome.tries) == (0, "5 passed, 1 flaky", 2)
    assert "crashed while running 'suite/test_it.py::test_dies'" in outcome.flaky[0]


def test_a_deterministic_test_that_kills_its_worker_is_not_repeated(tmp_path: Path) -> None:
    dies = "def test_dies():\n    tries()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    outcome = run(tmp_path, dies, GREEN, workers=2)
    assert (outcome.code, outcome.closing, outcome.tries) == (1, "1 failed, 1 passed", 1)


def test_a_timeout_counts_as_a_failure(tmp_path: Path) -> None:
    hangs = "@pytest.mark.real\n@pytest.mark.timeout(1)\ndef test_hangs():\n    if tries() == 1: time.sleep(60)\n"
    outcome = run(tmp_path, hangs)
    assert (outcome.code, outcome.closing) == (0, "1 flaky")
    assert "Timeout" in outcome.flaky[0]


def test_fixtures_that_fail_count_as_well(tmp_path: Path) -> None:
    moody = "@pytest.fixture\ndef moody():\n    yield\n    assert tries() > 1\n"
    outcome = run(tmp_path, moody, "@pytest.mark.real\ndef test_it(moody):\n    pass\n")
    assert (outcome.code, outcome.closing) == (0, "1 flaky")


def test_too_many_failures_are_no_bad_luck(tmp_path: Path) -> None:
    each = f"@pytest.mark.parametrize('number', range({MAX_REPEATED + 1}))\n"
    many = f"@pytest.mark.real\n{each}def test_it(number):\n    assert not tries()\n"
    outcome = run(tmp_path, many)
    assert (outcome.code, outcome.closing, outcome.tries) == (1, f"{MAX_REPEATED + 1} failed", MAX_REPEATED + 1)
    assert outcome.lines[-1] == f"{MAX_REPEATED + 1} real tests failed, more than {MAX_REPEATED}: none was repeated"


def test_one_that_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    skips = "@pytest.mark.real\ndef test_it():\n    if tries() > 1: pytest.skip('gone')\n    assert False\n"
    outcome = run(tmp_path, skips)
    assert (outcome.code, outcome.closing) == (1, "1 failed")


def test_a_run_that_could_not_collect_is_not_made_good(tmp_path: Path) -> None:
    outcome = run(tmp_path, FLAKY, "import no_such_module\n")
    assert outcome.code == 2
