"""The same pipeline on a Spark cluster: a master, two workers, and executors whose Python has no oncelog.

One driver does most of it, on oncelog's broker and on Apache Kafka, as a cluster is many JVMs. oncelog comes to the
executors with the job: as Python in a zip, or in an environment that is unpacked there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.spark.moments import VARIABLE, Moment
from oncelog.spark.package import write_environment, write_zip
from tests.spark.support.cluster import WORKER_HOSTS, SparkCluster
from tests.spark.support.driver import Driver
from tests.spark.support.interpreters import LIBRARIES, interpreter
from tests.spark.support.rig import Rig
from tests.support.process import BrokerProcess
from tests.support.sizes import only_at_full_size
from tests.support.spark import environment

ROWS = 200
MAX_TRIES = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def python_without_oncelog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = interpreter(tmp_path_factory.mktemp("python") / "env", LIBRARIES)
    tried = subprocess.run([python, "-c", "import pyarrow, oncelog"], check=False, capture_output=True, text=True)
    assert "No module named 'oncelog'" in tried.stderr
    return python


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


def test_topic_to_topic_on_two_hosts_with_attempts_that_lose_and_executors_that_die(
    cluster: SparkCluster,
    python_without_oncelog: Path,
    both_brokers: dict[str, BrokerProcess],
    tmp_path: Path,
    new_topic: Callable[[], str],
) -> None:
    package = tmp_path / "oncelog.zip"
    write_zip(package)
    with contextlib.ExitStack() as stack:
        rigs = [stack.enter_context(Rig(broker, tmp_path / kind, new_topic())) for kind, broker in both_brokers.items()]
        rig = rigs[0]
        settings = {
            **cluster.settings(),
            **SPECULATION,
            "spark.submit.pyFiles": str(package),
            f"spark.executorEnv.{VARIABLE}": str(rig.moments.folder),
        }
        # PySpark hands files of the job to executors, and not to all workers of the driver.
        path = os.pathsep.join([str(package), environment()["PYTHONPATH"]])
        driver = rig.driver(settings, {"PYSPARK_PYTHON": str(python_without_oncelog), "PYTHONPATH": path})
        seen = driver.look_around(len(WORKER_HOSTS))
        assert {one["host"] for one in seen} == set(WORKER_HOSTS)
        assert {one["python"] for one in seen} == {str(python_without_oncelog)}
        assert all("/oncelog.zip/" in one["oncelog"] and not one["native"] for one in seen)
        assert not [one for one in seen if one["oncelog"].startswith(str(package))], "not by the job, but by its path"
        for one in rigs:
            one.feed(ROWS)
            one.run_to_the_end(driver)
            one.check()
        the_other_host_wins(rig, driver)
        an_executor_dies(rig, driver, cluster)
        rig.check()
        driver.close()


def the_other_host_wins(rig: Rig, driver: Driver) -> None:
    """An attempt hangs amid its rows; another, elsewhere, takes its slot over. The first is never told, and wakes."""
    rig.feed(ROWS)
    rig.moments.arm(Moment.WRITING)
    driver.run(rig.plan())
    rig.moments.await_reached(Moment.WRITING)
    failure = driver.outcome()
    assert failure is None, failure
    rig.moments.release(Moment.WRITING)
    rig.check()


def an_executor_dies(rig: Rig, driver: Driver, cluster: SparkCluster) -> None:
    """With rows of its task stored, and not reported. If its task has lost to another attempt before it is found, the
    next batch has another."""
    for _ in range(MAX_TRIES):
        rig.feed(ROWS)
        rig.moments.arm(Moment.FLUSHED)
        driver.run(rig.plan())
        executor = cluster.executor_of(rig.moments.await_reached(Moment.FLUSHED))
        if executor is not None:
            os.kill(executor, signal.SIGKILL)
        failure = driver.outcome()
        assert failure is None, failure
        if executor is not None:
            return
    raise AssertionError(f"{MAX_TRIES} attempts had lost before their executors were found")


@only_at_full_size("an archive of some hundred megabytes, unpacked on each executor")
def test_an_environment_comes_with_the_job(
    cluster: SparkCluster, oncelog_broker: BrokerProcess, tmp_path: Path, new_topic: Callable[[], str]
) -> None:
    """Executors have the compiled parts from it. The driver's own workers find it by the same relative path."""
    archive = tmp_path / "oncelog-env.tar.gz"
    write_environment(archive)
    home = tmp_path / "home"
    with tarfile.open(archive) as packed:
        packed.extractall(home / "env", filter="data")
    with Rig(oncelog_broker, tmp_path, new_topic()) as rig:
        settings = {**cluster.settings(), "spark.archives": f"{archive}#env"}
        driver = rig.driver(settings, {"PYSPARK_PYTHON": "./env/bin/python"}, cwd=home)
        seen = driver.look_around(len(WORKER_HOSTS))
        assert {one["host"] for one in seen} == set(WORKER_HOSTS)
        assert all("/env/lib/oncelog/" in one["oncelog"] and one["native"] for one in seen)
        assert not [one for one in seen if one["oncelog"].startswith(str(home))]
        rig.feed(ROWS)
        rig.run_to_the_end(driver)
        rig.check()
        driver.close()
