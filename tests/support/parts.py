"""The real parts that tests run against: where they are kept, how they are fetched, what happens when one is missing.

Everything lands in ``~/.cache/oncelog`` (``$ONCELOG_CACHE`` moves it), never in the checkout. A part is fetched into a
neighbouring folder and renamed when complete, so that its folder's existence means it is whole. A lock file keeps two
test runs from fetching the same part at once. `python -m tests.support.parts` fetches all of them ahead of a run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

CACHE = Path(os.environ.get("ONCELOG_CACHE", Path.home() / ".cache" / "oncelog"))
FETCH_TIMEOUT_S = 280

T = TypeVar("T")

KAFKA_VERSION = "4.3.1"
KAFKAJS_VERSION = "2.2.4"

KAFKA_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
SPARK_CONNECTOR_ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
POSTGRES_JDBC_ARTIFACT = "org.postgresql:postgresql:42.7.8"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class PartMissingError(Exception):
    """A real system that a test needs is not here and could not be fetched."""


def missing(reason: str) -> NoReturn:
    """Under CI a missing part is a failure: a run that silently proves less must not look green."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def required(get: Callable[[], T]) -> T:
    """The part, or the test ends here: failed under CI, skipped elsewhere."""
    try:
        return get()
    except PartMissingError as reason:
        missing(str(reason))


@contextmanager
def fetch_lock(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def executable(name: str, package: str, folders: str | None = None) -> Path:
    """A program on the path, or in a folder like `folders`; as root on Debian its package is installed first."""
    found = _find(name, folders)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with fetch_lock("apt"):
            found = _find(name, folders)  # another test run may have installed it meanwhile
            if found is None:
                _install(package)
                found = _find(name, folders)
    if found is None:
        raise PartMissingError(f"{name} is not installed (Debian: apt-get install {package})")
    return Path(found)


def _find(name: str, folders: str | None) -> str | None:
    if found := shutil.which(name):
        return found
    candidates = sorted(Path("/").glob(f"{folders}/{name}")) if folders else []
    return str(candidates[-1]) if candidates else None


def _install(package: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    for command in (["apt-get", "update", "-qq"], install):
        subprocess.run(command, check=False, capture_output=True, timeout=FETCH_TIMEOUT_S, env=environment)


def java() -> Path:
    return executable("java", "default-jre-headless")


def kcat() -> Path:
    return executable("kcat", "kcat")


def postgres() -> Path:
    """PostgreSQL's server; `initdb` stands beside it, in a folder that Debian keeps off the path."""
    return executable("postgres", "postgresql", "usr/lib/postgresql/*/bin").resolve()


def redis_server() -> Path:
    return executable("redis-server", "redis-server")


def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars, fetched from Maven on first use."""
    libs = CACHE / "kafka" / "libs"
    with fetch_lock("kafka"):
        if not (libs / f"kafka-tools-{KAFKA_VERSION}.jar").exists():
            _fetch_jars(libs, KAFKA_ARTIFACTS, "Apache Kafka")
    return libs


def spark_connector() -> list[Path]:
    """The jars of Spark's own Kafka connector, each alone: all else that they name comes with Spark."""
    return _jars(CACHE / "spark-connector", SPARK_CONNECTOR_ARTIFACTS, "Spark's Kafka connector")


def postgres_jdbc() -> Path:
    (jar,) = _jars(CACHE / "postgres-jdbc", (POSTGRES_JDBC_ARTIFACT,), "PostgreSQL's JDBC driver")
    return jar


def _jars(home: Path, artifacts: tuple[str, ...], what: str) -> list[Path]:
    jars = [home / "{1}-{2}.jar".format(*artifact.split(":")) for artifact in artifacts]
    with fetch_lock(home.name):
        if not all(jar.exists() for jar in jars):
            _fetch_jars(home, artifacts, what, ALONE)
    return jars


def _fetch_jars(libs: Path, artifacts: tuple[str, ...], what: str, exclusions: str = "") -> None:
    partial, pom = libs.with_suffix(".partial"), libs.with_suffix(".pom.xml")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    pom.write_text(_pom(artifacts, exclusions))
    command = [
        str(executable("mvn", "maven")),
        *("-q", "-B", "-f", str(pom)),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={partial}",
    ]
    _run(command, f"{what} from Maven")
    shutil.rmtree(libs, ignore_errors=True)
    partial.rename(libs)


def _pom(artifacts: tuple[str, ...], exclusions: str) -> str:
    names = ("groupId", "artifactId", "version")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, artifact.split(":"), strict=True))
        + f"{exclusions}</dependency>\n"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>oncelog</groupId><artifactId>parts</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def kafkajs() -> Path:
    """The folder whose node_modules holds kafkajs, fetched from npm on first use."""
    executable("node", "nodejs")
    home = CACHE / "kafkajs"
    with fetch_lock("kafkajs"):
        if not (home / "node_modules" / "kafkajs" / "package.json").exists():
            _fetch_kafkajs(home)
    return home


def _fetch_kafkajs(home: Path) -> None:
    partial = CACHE / "kafkajs.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / "package.json").write_text('{"private": true}\n')
    npm = str(executable("npm", "npm"))
    command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(partial)]
    _run([*command, f"kafkajs@{KAFKAJS_VERSION}"], "kafkajs from npm")
    shutil.rmtree(home, ignore_errors=True)
    partial.rename(home)


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PartMissingError(f"could not fetch {what} within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise PartMissingError(f"could not fetch {what}: {said[0] if said else f'exit code {done.returncode}'}")


def fetch_all() -> None:
    """Whatever can be had; what is missing is named here once, and again by the tests that need it."""
    parts = (java, kafka_libs, kcat, kafkajs, postgres, redis_server, spark_connector, postgres_jdbc)
    for get in parts:
        try:
            found = get()
            print(f"{get.__name__}: {found[0].parent if isinstance(found, list) else found}")
        except PartMissingError as reason:
            print(f"{get.__name__}: missing: {reason}")


if __name__ == "__main__":
    fetch_all()
