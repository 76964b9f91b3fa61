"""Some modules run in two forms: the Python source, and the same source compiled (`make native`).

An extension that is older than its source would be tested in its place without a word; `stale_extensions` finds those.
As a pytest plugin (`-p tests.support.compiled`, with `ONCELOG_UNCOMPILED=1`) it makes Python import the sources
even where extensions lie beside them, so that one suite runs on both forms.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src" / "oncelog"
UNCOMPILED_VARIABLE = "ONCELOG_UNCOMPILED"


def stale_extensions() -> list[Path]:
    """Extensions that are older than what they were made from."""
    return [
        extension
        for extension in SOURCE.rglob("*.so")
        for source in extension.parent.glob(f"{extension.name.split('.')[0]}.p*")
        if source.suffix in {".py", ".pyx", ".pxd"} and source.stat().st_mtime > extension.stat().st_mtime
    ]


def import_sources_only() -> None:
    """From now on no extension of ours is imported, but for kernels that have a twin."""

    def find_sources(path: str) -> FileFinder:
        if not Path(path).is_relative_to(SOURCE):
            raise ImportError(path)
        return FileFinder(path, (SourceFileLoader, [".py"]))

    assert not [name for name in sys.modules if name.startswith("oncelog.client")], "too late: they are imported"
    sys.path_hooks.insert(0, find_sources)
    sys.path_importer_cache.clear()


if os.environ.get(UNCOMPILED_VARIABLE):
    os.environ["ONCELOG_KERNEL"] = "python"
    import_sources_only()
    from oncelog.client import batch

    assert batch.__file__.endswith(".py"), "the extension was imported all the same"
