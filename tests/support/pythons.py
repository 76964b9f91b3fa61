"""The Pythons of this machine that oncelog is for: of pyenv, and on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

OLDEST = (3, 11)
NEWEST = (3, 14)
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
WHICH = "import sys; print(*sys.version_info[:2], sys.implementation.name)"


@cache
def pythons() -> dict[str, Path]:
    """One of each version, by names such as `3.13`."""
    found: dict[str, Path] = {}
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        name = f"3.{minor}"
        candidates = [shutil.which(f"python{name}"), *sorted(PYENV.glob(f"{name}.*/bin/python"))]
        for candidate in filter(None, candidates):
            if _version(str(candidate)) == ["3", str(minor), "cpython"]:
                found.setdefault(name, Path(candidate))
    return found


def _version(python: str) -> list[str]:
    """Nothing, if it does not start: a shim of pyenv stands for versions that are not chosen, too."""
    ran = subprocess.run([python, "-c", WHICH], capture_output=True, text=True, timeout=60, check=False)
    return ran.stdout.split()
