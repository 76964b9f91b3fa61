"""Compiles the native parts in place; what was compiled before, of the same sources by the same tools, is copied.

Translating and compiling all of them takes minutes, so each result is kept in ``~/.cache/oncelog/native``
(``$ONCELOG_CACHE`` moves it), under a hash of everything that it depends on: another branch, or a fresh clone, begins
at once. Of a part whose hash is unknown nothing is copied. At most `MAX_KEPT` results stay, those that were used last.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import Cython
from setuptools import Extension

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("ONCELOG_CACHE", Path.home() / ".cache" / "oncelog")) / "native"
MAX_KEPT = 1_000
SHARED = (".pxd", ".pxi", ".h")
"""What any part may include."""


def tools_hash(root: Path) -> bytes:
    """Of all that is the same for each part: the tools and their options, and the declarations."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    facts = [sys.version, Cython.__version__, sysconfig.get_platform(), str(sysconfig.get_config_var("SOABI"))]
    facts += [f"{name}={os.environ.get(name, '')}" for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
    hashed = hashlib.sha256(version)
    for fact in facts:
        hashed.update(fact.encode() + b"\0")
    shared = sorted(path for path in (root / "src").rglob("*") if path.suffix in SHARED)
    for path in (root / "setup.py", *shared):
        hashed.update(str(path.relative_to(root)).encode() + b"\0")
        hashed.update(path.read_bytes())
    return hashed.digest()


def kept_as(part: Extension, tools: bytes, root: Path, cache: Path) -> Path:
    hashed = hashlib.sha256(tools + part.name.encode())
    for source in part.sources:
        hashed.update((root / source).read_bytes())
    return cache / f"{hashed.hexdigest()}.so"


def built_as(part: Extension, root: Path) -> Path:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return root / "src" / f"{part.name.replace('.', '/')}{suffix}"


def copy(source: Path, target: Path) -> None:
    """In one step, so that nobody finds half of it."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copyfile(source, unfinished)
    unfinished.rename(target)


def reuse(kept: Path, built: Path) -> None:
    if built.exists() and built.read_bytes() == kept.read_bytes():
        os.utime(built)  # its sources may be newer, and say the same
    else:
        copy(kept, built)
    os.utime(kept)


def forget_the_oldest(cache: Path) -> None:
    kept = sorted(cache.glob("*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[MAX_KEPT:]:
        path.unlink(missing_ok=True)


def main() -> None:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import setup

    CACHE.mkdir(parents=True, exist_ok=True)
    tools = tools_hash(ROOT)
    parts = [(part, kept_as(part, tools, ROOT, CACHE), built_as(part, ROOT)) for part in setup.natives()]
    for _, kept, built in parts:
        if kept.exists():
            reuse(kept, built)
    missing = [(part, kept, built) for part, kept, built in parts if not kept.exists()]
    if not missing:
        return
    for _, _, built in missing:
        built.unlink(missing_ok=True)
    setup.setup(
        ext_modules=[part for part, _, _ in missing],
        cmdclass={"build_ext": setup.AllOrNothing},
        options={"build_ext": {"parallel": setup.AT_ONCE, "inplace": True}},
        script_args=["-q", "build_ext"],
    )
    tools = tools_hash(ROOT)
    for part, kept, built in missing:
        if kept_as(part, tools, ROOT, CACHE) == kept:  # else its source was changed meanwhile: who knows what this is
            copy(built, kept)
    forget_the_oldest(CACHE)


if __name__ == "__main__":
    main()
