"""Pythons as executors of other people's clusters have them: with the libraries that oncelog needs, without oncelog."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

LIBRARIES = ("pyarrow", "numpy", "cramjam", "crc32c")


def interpreter(folder: Path, libraries: tuple[str, ...]) -> Path:
    """A virtual environment with these of our own libraries, each with what belongs to it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    own = Path(sysconfig.get_path("purelib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in libraries:
        for path in (*own.glob(name), *own.glob(f"{name}.libs"), *own.glob(f"{name}-*.dist-info")):
            (folder / "lib" / version / "site-packages" / path.name).symlink_to(path)
    return folder / "bin" / "python"
