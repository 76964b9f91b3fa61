"""What is installed from a source distribution: all of it, compiled where that can be done, and working elsewhere.

`make test` installs without a compiler, which takes seconds. With ONCELOG_SOAK (`make pythons`) everything is compiled
and installed, from the source distribution and as a wheel, on every Python that is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compiled import UNCOMPILED_VARIABLE
from tests.support.process import BrokerProcess
from tests.support.pythons import pythons
from tests.support.sizes import long_at_full_size, only_at_full_size

pytestmark = pytest.mark.real

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "oncelog"
TIMEOUT_S = 1_800
NO_COMPILER = {"CC": "no-such-compiler", "LDSHARED": "no-such-compiler"}
"""Linking has a setting of its own, whose default is the compiler that made this Python."""

# Leaves an empty file where a result is expected, and fails on one of the sources, late.
ALMOST_A_COMPILER = """#!/bin/sh
echo "$*" | grep -q client/standing_in.c && exit 1
while [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done
"""
USE = """
import oncelog
with oncelog.Broker() as broker:
    with oncelog.Producer(broker.bootstrap_servers) as producer:
        print(producer.send("orders", value="paid").result(60).offset)
    with oncelog.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek_to_beginning()
        print(consumer.poll(60)[0].value)
print(oncelog.__file__)
"""
SAYS_THAT_IT_IS_SLOW = "RuntimeWarning: oncelog runs without its native kernel"
# As on Windows, once Python has started: what there is not there can neither be imported nor called.
WITHOUT_POSIX = """
import asyncio, concurrent.futures, logging, os, select, selectors, shutil, signal, socket, sqlite3, subprocess, sys
import tempfile, uuid

for module in ("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"):
    sys.modules[module] = None
MISSING = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fchmod fchown fdatasync fork geteuid getgid getuid killpg lockf "
        "mkfifo pidfd_open posix_fadvise posix_fallocate pread preadv pwrite pwritev readv register_at_fork "
        "sched_getaffinity sendfile setsid statvfs sysconf uname writev",
    select: "POLLERR POLLHUP POLLIN POLLOUT epoll poll",
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 SIGUSR2 pthread_kill pthread_sigmask",
    socket: "MSG_DONTWAIT MSG_NOSIGNAL SO_REUSEPORT TCP_QUICKACK TCP_USER_TIMEOUT",
}
for module, names in MISSING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
os.pipe = None  # it can be had, but not be watched

class Missing:
    def __get__(self, *_):
        raise AttributeError("not on Windows")

socket.socket.sendmsg = socket.socket.recvmsg = Missing()
"""
CLIENTS = """
import asyncio, os, sys, tempfile
import oncelog, oncelog.once, oncelog.faults, oncelog.testing
import oncelog.cli.main, oncelog.cli.produce, oncelog.cli.consume
for name in oncelog.__all__:
    getattr(oncelog, name)

async def asynchronously(servers, topic):
    async with oncelog.AsyncProducer(servers) as producer:
        print((await producer.send(topic, value="paid")).offset)

servers, topic = sys.argv[1:]
with oncelog.Producer(servers) as producer:
    print(producer.send(topic, value="paid").result(60).offset)
asyncio.run(asynchronously(servers, topic))
with oncelog.Consumer(servers) as consumer:
    consumer.assign([(topic, 0)])
    consumer.seek_to_beginning()
    print(consumer.poll(60)[0].value)
with oncelog.Admin(servers) as admin:
    print(topic in {each.name for each in admin.list_topics()})
try:
    oncelog.Producer(servers, spool_dir=tempfile.mkdtemp())
except OSError as error:
    print(error)
"""


def run(*command: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [str(word) for word in command],
        cwd="/",  # nothing of the clone is found by accident
        env={**os.environ, "PYTHONPATH": "", **settings},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-5_000:]
    return ran


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy without anything that was compiled here."""
    clone = tmp_path_factory.mktemp("clone") / "oncelog"
    made = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", clone / "src", ignore=made)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    build = "import os, sys; os.chdir(sys.argv.pop(1)); exec(open('setup.py').read())"
    run(sys.executable, "-c", build, clone, "-q", "sdist")
    (archive,) = (clone / "dist").iterdir()
    return archive


def files_in(folder: Path) -> set[str]:
    skipped = {".so", ".c", ".pyc"}
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix not in skipped
    }


def test_the_sdist_holds_every_source(sdist: Path) -> None:
    top = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        held = {member.name.removeprefix(f"{top}/") for member in archive.getmembers() if member.isfile()}
    inside = {name.removeprefix("src/oncelog/") for name in held if name.startswith("src/oncelog/")}
    assert inside == files_in(PACKAGE)
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= held
    assert not [name for name in held if name.startswith(("build/", "tests/"))]


def test_without_a_compiler(sdist: Path, tmp_path: Path) -> None:
    """Installed by pip into a folder of its own, beside what this Python has installed."""
    target = tmp_path / "lib"
    offline = ("--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir")
    pip = run(sys.executable, "-m", "pip", "install", "-v", *offline, "--target", target, sdist, **NO_COMPILER)
    assert "installed without its compiled parts" in pip.stdout + pip.stderr
    assert not list(target.rglob("*.so"))
    wanted = {name for name in files_in(PACKAGE) if name.endswith((".py", ".pyi", ".pxd", ".json", "py.typed"))}
    assert files_in(target / "oncelog") == wanted
    (entry_points,) = target.glob("oncelog-*.dist-info/entry_points.txt")
    assert "[pytest11]\noncelog = oncelog.pytest_plugin" in entry_points.read_text()
    for blocked in ("", "uvloop"):
        without = tmp_path / f"without-{blocked}"
        without.mkdir()
        (without / "sitecustomize.py").write_text(f"import sys; sys.modules[{blocked!r}] = None\n" if blocked else "")
        used = run(sys.executable, "-c", USE, PYTHONPATH=f"{without}{os.pathsep}{target}")
        assert used.stdout.split() == ["0", "b'paid'", str(target / "oncelog" / "__init__.py")], used.stderr
        assert used.stderr.count(SAYS_THAT_IT_IS_SLOW) == 1


def test_what_is_compiled_needs_the_rest(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(ALMOST_A_COMPILER)
    compiler.chmod(0o755)
    places = ("--build-base", str(tmp_path / "build"), "--build-lib", str(tmp_path / "lib"))
    built = subprocess.run(
        [sys.executable, "setup.py", "build", *places],
        cwd=ROOT,
        env={**os.environ, "CC": str(compiler), "LDSHARED": str(compiler)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert len(list(tmp_path.rglob("*.o"))) > 20, "most of it was compiled"
    assert not list(tmp_path.rglob("*.so"))
    assert (tmp_path / "lib" / "oncelog" / "client" / "standing_in.py").exists()


@pytest.mark.parametrize("form", ["compiled", "as sources"])
def test_clients_need_nothing_that_windows_lacks(
    form: str, oncelog_broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    """Imported and used in a Python without these modules, functions and constants; there nothing is compiled."""
    uncompiled = "" if form == "compiled" else "import tests.support.compiled\n"
    used = run(
        sys.executable,
        "-c",
        uncompiled + WITHOUT_POSIX + CLIENTS,
        oncelog_broker.bootstrap,
        new_topic(),
        PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        **({} if form == "compiled" else {UNCOMPILED_VARIABLE: "1"}),
    )
    *done, refused = used.stdout.splitlines()
    assert done == ["0", "1", "b'paid'", "True"], used.stderr
    assert "need Linux or macOS" in refused


def new_environment(python: Path, folder: Path) -> Path:
    """The Python of a virtual environment that holds pip alone."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


@only_at_full_size("minutes for each Python")
@long_at_full_size
@pytest.mark.parametrize("version", pythons())
def test_on_every_python(version: str, sdist: Path, tmp_path: Path) -> None:
    """A wheel is made of the source distribution and installed; without a compiler the latter is installed itself."""
    compiled = new_environment(pythons()[version], tmp_path / "compiled")
    run(compiled, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", tmp_path, sdist)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        natives = [name for name in archive.namelist() if name.endswith(".so")]
        assert len(natives) > 40
        assert not [name for name in archive.namelist() if name.endswith((".pyx", ".c", ".h"))]
    run(compiled, "-m", "pip", "install", "-q", wheel)
    used = run(compiled, "-W", "error", "-c", USE)
    assert used.stdout.split()[:2] == ["0", "b'paid'"]
    assert str(tmp_path / "compiled") in used.stdout

    as_sources = new_environment(pythons()[version], tmp_path / "sources")
    run(as_sources, "-m", "pip", "install", "-q", "--no-cache-dir", sdist, **NO_COMPILER)
    used = run(as_sources, "-c", USE)
    assert used.stdout.split()[:2] == ["0", "b'paid'"]
    assert used.stderr.count(SAYS_THAT_IT_IS_SLOW) == 1
