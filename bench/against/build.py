"""The older side: a commit's files with its native parts compiled, in a folder of its own outside of the checkout.

It is compiled by the present environment's Python and imported by way of PYTHONPATH: nothing is ever installed. What
was built once is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Progress

CHECKOUT = Path(__file__).parents[2]
CACHE = Path.home() / ".cache" / "oncelog" / "against"
BUILD_TIMEOUT_S = 1_200


class NoSuchBuildError(Exception):
    """The commit is unknown, or cannot be compiled."""


@dataclass(frozen=True)
class Build:
    commit: str
    source: Path
    """What PYTHONPATH is to be."""


def present() -> Build:
    head = _git("rev-parse", "HEAD")
    changed = bool(_git("status", "--porcelain", "--", "src", "setup.py"))
    return Build(f"{head} and what is not committed" if changed else head, CHECKOUT / "src")


def build(name: str, progress: Progress) -> Build:
    """The commit of this name (a hash, a branch, a tag)."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    folder = CACHE / f"{commit}-{sys.implementation.cache_tag}"
    if not folder.exists():
        progress(f"compiling {commit[:12]}, once, in {folder}")
        unfinished = CACHE / f"unfinished-{os.getpid()}"
        unfinished.mkdir(parents=True)
        try:
            _compile(commit, unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Build(commit, folder / "src")


def _compile(commit: str, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    for command in (["setup.py", "-q", "build_ext", "--inplace"], ["-m", "compileall", "-q", "src"]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise NoSuchBuildError(f"{commit[:12]} cannot be compiled:\n{done.stderr[-2_000:]}")
    shutil.rmtree(folder / "build", ignore_errors=True)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoSuchBuildError(f"git {' '.join(arguments)}: {done.stderr.strip() or 'no such commit'}")
    return done.stdout.strip()
