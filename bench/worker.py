"""Runs one client program in a process of its own, so that no run warms up another or shares its interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

WORKER_TIMEOUT_S = 900

Result = dict[str, float]
J = TypeVar("J")


def environment(source: Path | None) -> dict[str, str]:
    """Of a process that imports oncelog from this folder, and keeps its bytecode; without one, from where we do."""
    if source is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}


def measured(module: str, program: str, job: Any, source: Path | None = None) -> Result:
    """Run one of the module's JOBS in a new process, with the oncelog of `source`. `job` is a dataclass that JSON can
    carry."""
    command = [sys.executable, "-m", module, program, json.dumps(asdict(job))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WORKER_TIMEOUT_S, env=environment(source), check=False
    )
    assert done.returncode == 0, f"{program}: {job}\n{done.stdout}\n{done.stderr}"
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def serve(programs: Mapping[str, Callable[[J], Result]], job: Callable[..., J]) -> None:
    """The other end: what such a process does."""
    print(json.dumps(programs[sys.argv[1]](job(**json.loads(sys.argv[2])))))


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
