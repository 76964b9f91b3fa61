"""Pythons as executors of other people's clusters have them: with the libraries that oncelog needs, without oncelog."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

LIBRARIES = ("pyarrow", "numpy", "numpy.libs", "cramjam", "crc32c", "uvloop", "prometheus_client", "pandas")
BARE = ("numpy", "numpy.libs")


def interpreter(folder: Path, libraries: tuple[str, ...]) -> Path:
    """A virtual environment with these of our own libraries."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    own = Path(sysconfig.get_path("purelib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in libraries:
        (folder / "lib" / version / "site-packages" / name).symlink_to(own / name)
    return folder / "bin" / "python"
