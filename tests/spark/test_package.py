"""The files that bring oncelog to executors, used by a Python that knows nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from oncelog.spark.package import main, write_environment, write_zip

BASE = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
"""The Python below the virtual environment."""


def run(command: list[str], folder: Path) -> str:
    """With a path of its own, and nothing else of our environment."""
    environment = {"PATH": f"{BASE.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("package") / "oncelog.zip"
    assert main([str(target)]) == 0
    return target


def test_the_zip_has_all_of_the_package_and_nothing_compiled_to_machine_code(package: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(package).namelist()
    assert {"oncelog/__init__.py", "oncelog/__init__.pyc", "oncelog/py.typed"} <= set(names)
    assert {"oncelog/spark/sink/task.py", "oncelog/wire/schemas/ApiVersionsRequest.json"} <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyx", ".c")) or "__pycache__" in name]
    again = tmp_path / "again.zip"
    write_zip(again)
    assert package.read_bytes() == again.read_bytes()


def test_a_python_without_oncelog_imports_it_from_the_zip(package: Path, tmp_path: Path) -> None:
    path = f"import sys; sys.path.insert(0, {str(package)!r})"
    code = f"{path}; import oncelog.wire.schema, oncelog; print(oncelog.__file__)"
    assert run([str(BASE), "-I", "-S", "-c", code], tmp_path).startswith(str(package))


def test_the_environment_can_be_unpacked_anywhere(tmp_path: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = tmp_path / "made" / "lib" / version / "site-packages"
    for name in ("colours", "pyspark", "pip"):
        (libraries / name).mkdir(parents=True)
        (libraries / name / "__init__.py").write_text(f"NAME = {name!r}\n")
    (libraries / "__editable__.oncelog.pth").write_text("/nowhere\n")
    target = tmp_path / "oncelog-env.tar.gz"
    write_environment(target, tmp_path / "made")

    unpacked = tmp_path / "elsewhere" / "env"
    with tarfile.open(target) as archive:
        archive.extractall(unpacked, filter="data")
    assert sorted(path.name for path in (unpacked / "lib").iterdir()) == ["colours", "oncelog"]
    code = "import colours, oncelog.wire.schema, oncelog; print(colours.NAME, oncelog.__file__)"
    seen = run(["env/bin/python", "-c", code], unpacked.parent)
    assert seen.split() == ["colours", str(unpacked / "lib" / "oncelog" / "__init__.py")]


def test_other_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "oncelog.rar")])
    assert "neither a .zip nor a .tar.gz" in capsys.readouterr().err
