"""A Go program of the tests, built on first use into the cache: its clients come from modules pinned by `go.sum`."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import parts

BUILD_TIMEOUT_S = 280
# Built once and run for a second: skipping the optimiser, the linker's tables and C halves the time of the build.
BUILD_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-N -l", "-ldflags=-s -w")
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}


def program(sources: Path) -> Path:
    """The executable of the module in that folder. Where Go is missing or too old for it, the test is skipped, under CI
    too: Go is no part of what this project asks for. Where Go is there, its modules must be within reach."""
    go = _toolchain(sources)
    home = parts.CACHE / "go" / _fingerprint(sources)
    with parts.fetch_lock("go"):
        if not (home / "program").exists():
            _build(go, sources, home)
    return home / "program"


def _toolchain(sources: Path) -> str:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    needed = _version(_first(r"^go (\S+)$", (sources / "go.mod").read_text()))
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True, env=_environment())
    if _version(said.stdout) < needed:
        pytest.skip(f"{said.stdout.strip()} is installed, {'.'.join(map(str, needed))} is needed")
    return go


def _build(go: str, sources: Path, home: Path) -> None:
    fetched = _run([go, "mod", "download"], sources)
    if fetched.returncode != 0:
        parts.missing(f"could not fetch Go modules: {fetched.stderr.strip().splitlines()[-1]}")
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    built = _run([go, "build", *BUILD_FLAGS, "-o", str(partial / "program"), "."], sources)
    assert built.returncode == 0, built.stderr
    partial.rename(home)


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )


def _environment() -> dict[str, str]:
    return {**os.environ, **BUILD_ENVIRONMENT}


def _fingerprint(sources: Path) -> str:
    """Changes with whatever the executable is made of."""
    digest = hashlib.sha256()
    for file in sorted(sources.glob("*")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _version(text: str) -> tuple[int, ...]:
    """`go1.26.8` and `1.26.0` as numbers that compare."""
    return tuple(int(number) for number in _first(r"(\d+(?:\.\d+)*)", text).split("."))


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, f"{pattern} is not in {text!r}"
    return found[1]
