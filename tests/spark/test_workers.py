"""Workers of Spark that run another Python than the program: noticed at once, or set right."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.spark import register
from oncelog.spark.workers import VARIABLE, WorkerPython, WorkersLackOncelog, check_executors, settle_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def context(program: str, master: str = "local[2]") -> Any:
    return SimpleNamespace(master=master, pythonExec=program, _python_includes=[])


@pytest.fixture
def bare_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python of the same version that finds PySpark, as every worker does, and nothing else."""
    import pyspark

    home = Path(pyspark.__file__).parent
    libraries = ":".join(map(str, (home / "python" / "lib").glob("*.zip")))
    assert libraries
    path = tmp_path / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexport PYTHONPATH={libraries}\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path


def test_what_is_wrong_with_a_python() -> None:
    assert WorkerPython("python3", (3, 11), ()).problem((3, 11)) is None
    assert WorkerPython("python3", (3, 11), ("oncelog", "pyarrow")).problem((3, 11)) == "has no oncelog and no pyarrow"
    assert WorkerPython("python3", (3, 9), ()).problem((3, 11)) == "is Python 3.9, and this program's is 3.11"


def test_workers_on_this_machine_run_the_programs_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    local = context("python3")
    settle_python(local)
    assert local.pythonExec == sys.executable


@pytest.mark.parametrize("program", [sys.executable, str(Path(sys.executable).parent / "python3")])
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setenv(VARIABLE, program)
    chosen = context(program)
    settle_python(chosen)
    assert chosen.pythonExec == program


def test_a_python_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "./env/bin/python")
    with pytest.raises(WorkersLackOncelog, match=r"'\./env/bin/python', as PYSPARK_PYTHON says, and there is no such"):
        settle_python(context("./env/bin/python", "spark://somewhere:7077"))


@pytest.mark.real
def test_a_python_without_oncelog_is_refused_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, bare_python: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(bare_python))
    with pytest.raises(WorkersLackOncelog, match=f"has no oncelog and no pyarrow. Set PYSPARK_PYTHON={sys.executable}"):
        settle_python(context(str(bare_python)))
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("PATH", f"{bare_python.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(WorkersLackOncelog, match=r"as PYSPARK_PYTHON is not set .* on every executor"):
        settle_python(context("python3", "spark://somewhere:7077"))


@pytest.mark.real
def test_the_python_of_a_script_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/bin/false")
    with pytest.raises(WorkersLackOncelog, match="/bin/false, which does not work as a Python"):
        settle_python(context("/bin/false"))


def test_an_executor_says_what_its_python_lacks(
    spark: SparkSession, bare_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_executors(spark.sparkContext)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare_python))
    with pytest.raises(WorkersLackOncelog, match="has no oncelog and no pyarrow: set PYSPARK_PYTHON"):
        check_executors(spark.sparkContext)


def test_register_tells_before_anything_is_registered(
    spark: SparkSession, bare_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(bare_python))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare_python))
    with pytest.raises(WorkersLackOncelog, match="has no oncelog"):
        register(spark)
