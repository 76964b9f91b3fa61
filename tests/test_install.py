"""An install where nothing, or not all, can be compiled: everything works on the Python sources, and says so once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 300
# Leaves an empty file where a result is expected, and fails on one of the sources, late.
ALMOST_A_COMPILER = """#!/bin/sh
echo "$*" | grep -q client/standing_in.c && exit 1
while [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done
"""
USE = """
import oncelog
with oncelog.Broker() as broker:
    with oncelog.Producer(broker.bootstrap_servers) as producer:
        print(producer.send("orders", value="paid").result(60).offset)
    with oncelog.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek_to_beginning()
        print(consumer.poll(60)[0].value)
print(oncelog.__file__)
"""


def build(compiler: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    places = ("--build-base", str(folder / "build"), "--build-lib", str(folder / "lib"))
    command = [sys.executable, "setup.py", "build", *places, *more]
    # Linking has a setting of its own, whose default is the compiler that made this Python.
    settings = {**os.environ, "CC": compiler, "LDSHARED": compiler}
    return subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture
def almost_a_compiler(tmp_path: Path) -> str:
    script = tmp_path / "cc"
    script.write_text(ALMOST_A_COMPILER)
    script.chmod(0o755)
    return str(script)


def test_without_a_compiler(tmp_path: Path) -> None:
    built = build("no-such-compiler", tmp_path)
    assert built.returncode == 0, built.stderr
    assert "installed without its compiled parts" in built.stderr
    assert not list(tmp_path.rglob("*.so"))
    used = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert used.stdout.split() == ["0", "b'paid'", str(tmp_path / "lib" / "oncelog" / "__init__.py")], used.stderr
    assert used.stderr.count("RuntimeWarning: oncelog runs without its native kernel") == 1


def test_what_is_compiled_needs_the_rest(tmp_path: Path, almost_a_compiler: str) -> None:
    built = build(almost_a_compiler, tmp_path)
    assert built.returncode == 0, built.stderr
    assert len(list(tmp_path.rglob("*.o"))) > 20, "most of it was compiled"
    assert not list(tmp_path.rglob("*.so"))
    assert (tmp_path / "lib" / "oncelog" / "client" / "standing_in.py").exists()
