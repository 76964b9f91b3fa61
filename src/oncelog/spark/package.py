"""oncelog for the executors of a cluster, as a file that Spark brings to them.

    python -m oncelog.spark.package oncelog.zip            # for spark-submit --py-files
    python -m oncelog.spark.package oncelog-env.tar.gz     # for spark.archives

A `.zip` holds the package as Python alone, which is all that can be imported from one: executors need its libraries
(pyarrow among them) installed, and work without the compiled parts, more slowly. A `.tar.gz` holds the virtual
environment that runs this, without PySpark, which executors have: all libraries and the compiled parts come with it.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import marshal
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import oncelog
from oncelog.errors import OncelogError

PACKAGE: Final = Path(oncelog.__file__).parent
SOURCES: Final = ("*.py", "*.json", "py.typed")
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Of every file in a zip, so that one package makes one file, byte by byte."""
HASHED_NEVER_CHECKED: Final = 1
"""The flags of a .pyc whose source need not be looked at."""
LEFT_OUT: Final = ("pyspark", "py4j", "pip", "setuptools", "pkg_resources", "wheel", "__pycache__")
"""Of site-packages: what executors have from Spark itself, and what only builds."""


class NotPackaged(OncelogError):
    """Why no file was written."""


def write_zip(target: Path) -> None:
    """Compiled ahead, beside the sources, else every worker would do it anew. Another Python uses the sources."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _package_files():
            name = str(Path(PACKAGE.name) / path.relative_to(PACKAGE))
            data = path.read_bytes()
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
            if path.suffix == ".py":
                archive.writestr(zipfile.ZipInfo(f"{name}c", EPOCH), _compiled(name, data), zipfile.ZIP_DEFLATED)


def _package_files() -> Iterator[Path]:
    yield from sorted(path for pattern in SOURCES for path in PACKAGE.rglob(pattern))


def _compiled(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    flags = HASHED_NEVER_CHECKED.to_bytes(4, "little")
    head = importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def write_environment(target: Path, environment: Path | None = None) -> None:
    """The libraries of this virtual environment and a `bin/python`, which starts the executor's own Python of the same
    version with them: an environment is tied to the place where it was made, and this one can be unpacked anywhere."""
    home = Path(sys.prefix) if environment is None else environment
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = home / "lib" / version / "site-packages"
    if sys.prefix == sys.base_prefix and environment is None:
        raise NotPackaged(
            f"{sys.executable} is not a virtual environment: make one with oncelog[spark] in it, use its Python"
        )
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for path in sorted(libraries.iterdir()):
            if path.name.partition("-")[0] not in LEFT_OUT and path.name != PACKAGE.name:
                archive.add(path, f"lib/{path.name}", filter=_without_caches)
        archive.add(PACKAGE, f"lib/{PACKAGE.name}", filter=_without_caches)
        _add_executable(archive, "bin/python", _starter(version))


def _starter(version: str) -> bytes:
    return (
        "#!/bin/sh\n"
        'home=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)\n'
        'export PYTHONPATH="$home/lib${PYTHONPATH:+:$PYTHONPATH}"\n'
        f'exec {version} "$@"\n'
    ).encode()


def _add_executable(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in Path(entry.name).parts or entry.name.endswith(".pth") else entry


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m oncelog.spark.package", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("target", type=Path, help="OUT.zip for --py-files, or OUT.tar.gz for spark.archives")
    target: Path = parser.parse_args(arguments).target
    try:
        if target.name.endswith(".zip"):
            write_zip(target)
        elif target.name.endswith((".tar.gz", ".tgz")):
            write_environment(target)
        else:
            parser.error(f"{target.name} is neither a .zip nor a .tar.gz")
    except (OSError, NotPackaged) as error:
        print(f"not packaged: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
