"""oncelog.Broker: a process of its own that serves, stops, crashes, comes back, and never outlives its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import oncelog
from tests.support.patience import eventually
from tests.support.ports import unused_port

pytestmark = pytest.mark.real

END_TIMEOUT_S = 60


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def await_end(pid: int) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def connects(bootstrap_servers: str) -> bool:
    host, _, port = bootstrap_servers.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=END_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def test_serves_and_leaves_nothing_behind() -> None:
    with oncelog.Broker() as broker:
        pid, data_dir, scratch = broker.pid, broker.data_dir, broker.log_path.parent
        assert pid is not None
        assert connects(broker.bootstrap_servers)
        assert data_dir.is_dir()
    assert not is_alive(pid)
    assert not scratch.exists()
    assert not data_dir.exists()


def test_a_given_data_dir_is_kept(tmp_path: Path) -> None:
    with oncelog.Broker(tmp_path / "data"):
        pass
    assert (tmp_path / "data").is_dir()


def test_config_reaches_the_broker(tmp_path: Path) -> None:
    with pytest.raises(oncelog.BrokerFailed, match=r"num\.partitions"):
        oncelog.Broker(tmp_path, config={"num.partitons": 3}).__enter__()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"config": "num.partitions=3"}, r'config is a mapping of keys to values, such as {"num\.partitions": 3}; not'),
        ({"config": ["num.partitions"]}, "config is a mapping of keys to values"),
        ({"config": {"num.partitions": None}}, r"the config num\.partitions is a string, a number, true or false, or"),
        ({"config": {3: 3}}, "each key of config is a string"),
        ({"port": "9092"}, r"port is a whole number, 0 for a free one, not '9092' \(str\)"),
        ({"port": 70_000}, "port is 65535 or less, not 70000"),
        ({"host": None}, "host is a string"),
        ({"advertise": 9092}, "advertise is a string"),
        ({"data_dir": 5}, r"data_dir is the path of a folder, not 5 \(int\)"),
        ({"start_timeout_ms": "1"}, "start_timeout_ms is a whole number"),
    ],
)
@pytest.mark.deterministic
def test_what_a_broker_cannot_be_made_of_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: pytest.fail("a folder was made"))
    with pytest.raises((TypeError, ValueError), match=said):
        oncelog.Broker(**arguments)


def test_a_chosen_port_and_address_are_used() -> None:
    port = unused_port()
    with oncelog.Broker(port=port, advertise="127.0.0.1:1") as broker:
        assert connects(f"127.0.0.1:{port}")
        assert broker.bootstrap_servers == "127.0.0.1:1"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_comes_back_at_the_same_address_with_the_same_data(end: str) -> None:
    with oncelog.Broker(port=unused_port()) as broker:
        address, data_dir = broker.bootstrap_servers, broker.data_dir
        cluster = sorted(path.name for path in data_dir.iterdir())
        getattr(broker, end)()
        assert not broker.running
        assert not connects(address)
        broker.start()
        assert broker.bootstrap_servers == address
        assert connects(address)
        assert set(cluster) - {".kafka_cleanshutdown"} <= {path.name for path in data_dir.iterdir()}


def test_stop_returns_the_exit_code_and_may_be_repeated() -> None:
    broker = oncelog.Broker()
    broker.start()
    assert broker.stop() == 0
    assert broker.stop() == 0
    broker.close()
    broker.close()
    with pytest.raises(oncelog.BrokerFailed, match="closed"):
        broker.start()


def test_restart_works_whether_it_runs_or_was_killed() -> None:
    with oncelog.Broker() as broker:
        first, address = broker.pid, broker.bootstrap_servers
        broker.restart()
        second = broker.pid
        broker.kill()
        broker.restart()
        assert len({first, second, broker.pid}) == 3
        assert broker.bootstrap_servers == address


def test_starting_twice_is_an_error() -> None:
    with oncelog.Broker() as broker, pytest.raises(oncelog.BrokerFailed, match="already runs"):
        broker.start()


def test_no_address_before_the_start() -> None:
    broker = oncelog.Broker()
    with pytest.raises(oncelog.BrokerFailed, match="no address yet"):
        _ = broker.bootstrap_servers
    broker.close()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with oncelog.Broker(tmp_path):
        second = oncelog.Broker(tmp_path)
        with pytest.raises(oncelog.BrokerFailed, match="exit code 1") as failure:
            second.start()
        assert str(tmp_path) in str(failure.value)
        second.close()


def test_a_broker_that_takes_too_long_is_ended() -> None:
    broker = oncelog.Broker(start_timeout_ms=1)
    with pytest.raises(oncelog.BrokerFailed, match="not ready within 1 ms"):
        broker.start()
    assert not broker.running
    broker.close()


def test_a_forgotten_broker_ends() -> None:
    broker = oncelog.Broker()
    broker.start()
    pid, scratch = broker.pid, broker.log_path.parent
    assert pid is not None
    del broker
    assert not is_alive(pid)
    assert not scratch.exists()


def test_outlives_the_thread_that_started_it() -> None:
    broker = oncelog.Broker()
    starter = threading.Thread(target=broker.start)
    starter.start()
    starter.join()
    thread = Path(f"/proc/self/task/{starter.native_id}")
    eventually(lambda: not thread.exists(), "the system has ended the thread too")
    assert broker.running
    assert connects(broker.bootstrap_servers)
    broker.close()


def test_cannot_be_pickled() -> None:
    broker = oncelog.Broker()
    with pytest.raises(TypeError, match="bootstrap_servers"):
        pickle.dumps(broker)
    broker.close()


PARENT = """
import oncelog, os, sys, time
broker = oncelog.Broker()
broker.start()
if sys.argv[1:] == ["fork"] and os.fork() == 0:
    time.sleep(600)  # a sibling that inherited everything
print(broker.pid, broker.log_path.parent, flush=True)
time.sleep(600)
"""


def end_of_a_killed_parent(*arguments: str) -> None:
    command = [sys.executable, "-c", PARENT, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            pid, scratch = parent.stdout.readline().split()
            assert is_alive(int(pid))
            parent.kill()
            await_end(int(pid))
            assert not Path(scratch).exists()
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_ends_with_a_killed_parent() -> None:
    end_of_a_killed_parent()


def test_ends_with_a_killed_parent_despite_a_forked_sibling() -> None:
    end_of_a_killed_parent("fork")


def test_ends_with_a_killed_parent_without_pidfd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, or on a kernel before 5.3."""
    (tmp_path / "sitecustomize.py").write_text("import os\nvars(os).pop('pidfd_open', None)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    end_of_a_killed_parent()


def start_in_child(answers: multiprocessing.Queue[object]) -> None:
    with oncelog.Broker() as broker:
        answers.put((broker.pid, connects(broker.bootstrap_servers)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_works_in_a_multiprocessing_child(method: str) -> None:
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=start_in_child, args=(answers,))
    child.start()
    pid, connected = answers.get(timeout=END_TIMEOUT_S)
    child.join(END_TIMEOUT_S)
    assert connected
    assert child.exitcode == 0
    await_end(pid)


def test_a_forked_child_leaves_the_broker_alone() -> None:
    with oncelog.Broker() as broker:
        child = os.fork()
        if child == 0:
            broker.close()
            os._exit(0 if not broker.running else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert broker.running
        assert connects(broker.bootstrap_servers)


def test_the_package_exports_what_it_promises() -> None:
    for name in oncelog.__all__:
        assert getattr(oncelog, name) is not None
        assert name in dir(oncelog)
    with pytest.raises(AttributeError, match="no attribute 'Brokker'"):
        _ = oncelog.Brokker


def test_importing_the_package_is_cheap() -> None:
    heavy = ("asyncio", "subprocess", "uvloop", "rich")
    code = f"import sys, oncelog; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
