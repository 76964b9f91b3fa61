"""The plugin as users have it: pytest in processes of its own, few of them, each with many small tests inside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from oncelog.testing.names import seed_of
from tests.testing.running import TIMEOUT_S, run_pytest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.real

WHAT_IT_LOADS = """
import sys, typing, pytest
before = set(sys.modules)
import oncelog.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""


def test_importing_it_imports_nothing_else() -> None:
    """It is loaded in every run of everybody; `-X importtime` says 1 ms, and this is why."""
    loaded = subprocess.run([sys.executable, "-c", WHAT_IT_LOADS], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["oncelog", "oncelog.pytest_plugin"]


def test_a_run_that_uses_no_fixture_starts_and_loads_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing(request):
            used = [name for name in request.fixturenames if name.startswith("oncelog")]
            assert used == []
            assert [name for name in sys.modules if name.startswith("oncelog.")] == ["oncelog.pytest_plugin"]
        """
    )
    run_pytest(pytester, "--strict-markers").assert_outcomes(passed=1)


def test_it_is_found_where_it_is_installed_and_nothing_is_compiled_anew(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest would rewrite the assertions of all modules of a package that brings a plugin."""
    installed = pytester.mkdir("oncelog-0.dist-info")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: oncelog-beside\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\noncelog = oncelog.pytest_plugin\n")
    (installed / "RECORD").write_text("oncelog/__init__.py,,\noncelog/client/config.py,,\n")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=os.pathsep)
    pytester.makepyfile(
        """
        from importlib.machinery import SourceFileLoader
        from oncelog.client import config

        def test_it_is_there(request, oncelog_group):
            assert request.config.pluginmanager.get_plugin("oncelog").__name__ == "oncelog.pytest_plugin"
            assert type(config.__loader__) is SourceFileLoader
        """
    )
    pytester.runpytest_subprocess(timeout=TIMEOUT_S).assert_outcomes(passed=1)


def test_everything_at_once(pytester: pytest.Pytester) -> None:
    """All fixtures; a broker that is killed and comes back, or that its test forgets; coroutines as tests."""
    pytester.makeconftest(
        """
        import asyncio, inspect, pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):  # as pytest-asyncio and anyio do
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                names = inspect.signature(pyfuncitem.obj).parameters
                asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
                return True
        """
    )
    pytester.makepyfile(
        """
        import oncelog, pytest

        pytestmark = pytest.mark.oncelog(partitions=2)

        @pytest.mark.oncelog(faults=["drop-response Produce every=5"])
        def test_through_faults(oncelog_topic, oncelog_proxy, oncelog_audit, oncelog_bootstrap):
            assert oncelog_proxy.bootstrap_servers != oncelog_bootstrap
            with oncelog.Producer(oncelog_proxy.bootstrap_servers) as producer:
                for number in range(20):
                    producer.send(oncelog_topic, f"orders/{number}", partition=1).result(60)
            assert oncelog_proxy.report().responses["Produce"].dropped > 0
            oncelog_audit(oncelog_topic).assert_clean(stored=20)

        def test_a_broker_is_killed_and_comes_back(oncelog_broker, oncelog_topic, oncelog_producer, oncelog_consumer):
            assert oncelog_producer.partitions_for(oncelog_topic) == 2
            address = oncelog_broker.bootstrap_servers
            oncelog_producer.send(oncelog_topic, "before", partition=0).result(60)
            oncelog_broker.kill()
            assert not oncelog_broker.running
            oncelog_broker.restart()
            assert oncelog_broker.bootstrap_servers == address
            assert oncelog_producer.send(oncelog_topic, "after", partition=0).result(60).offset == 1
            values = []
            while len(values) < 2:
                values += [record.value for record in oncelog_consumer.poll(60)]
            assert values == [b"before", b"after"]

        def test_a_broker_is_killed_and_forgotten(oncelog_broker, oncelog_producer):
            oncelog_broker.kill()

        async def test_it_is_there_again(oncelog_broker, oncelog_bootstrap, oncelog_topic, oncelog_transactional_id):
            assert oncelog_broker.running
            settings = {"transactional_id": oncelog_transactional_id}
            async with oncelog.AsyncProducer(oncelog_bootstrap, **settings) as producer:
                async with producer.transaction():
                    await producer.send(oncelog_topic, "in a loop")

        @pytest.mark.oncelog(consumer={"max_poll_records": 1}, producer={"max_request_size": 1000})
        def test_settings_of_clients(oncelog_topics, oncelog_topic, oncelog_group, oncelog_producer, oncelog_consumer):
            names = [oncelog_topics("a"), oncelog_topics("a", partitions=5), oncelog_topic, oncelog_group]
            assert len(set(names)) == 4
            assert all("settings_of_clients" in name for name in names)
            assert oncelog_producer.partitions_for(names[1]) == 5
            with pytest.raises(oncelog.RecordTooLarge):
                oncelog_producer.send(oncelog_topic, b"x" * 1000)
            for _ in range(2):
                oncelog_producer.send(oncelog_topic, "x", partition=0)
            oncelog_producer.flush()
            assert [len(oncelog_consumer.poll(60)) for _ in range(2)] == [1, 1]
        """
    )
    run_pytest(pytester, "--strict-markers", "-W", "error::pytest.PytestWarning").assert_outcomes(passed=5)


def test_what_a_failure_tells(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def write(broker, line):
            with open(broker.log_path, "a") as log:
                print(line, file=log)

        def test_passes(oncelog_broker):
            write(oncelog_broker, "not about the next test")

        @pytest.mark.oncelog(faults=["drop-response Produce 0.5"])
        def test_fails(oncelog_broker, oncelog_proxy, oncelog_topic, oncelog_audit):
            write(oncelog_broker, "disk on fire")
            oncelog_audit(oncelog_topic).assert_clean()

        @pytest.mark.oncelog(faults=["drop-response Produce 0.5"], seed=7)
        def test_with_a_seed(oncelog_proxy):
            raise AssertionError

        def test_is_about_something_else():
            raise AssertionError

        @pytest.mark.oncelog(faults=["drop-response Produce 0.5"])
        def test_faults_for_nobody(oncelog_topic):
            pass

        @pytest.mark.oncelog(fautls=[])
        def test_misspelt(oncelog_topic):
            pass

        @pytest.mark.oncelog(faults=["drop-respons Produce"])
        def test_no_such_fault(oncelog_proxy):
            pass
        """
    )
    ran = run_pytest(pytester)
    ran.assert_outcomes(passed=1, failed=3, errors=3)
    ran.stdout.fnmatch_lines_random(
        [
            "*mark.oncelog names faults, but nothing goes through oncelog_proxy*",
            "*unknown argument 'fautls'; did you mean faults?",
            "*unknown fault 'drop_respons'; did you mean drop_response?*",
            "*the topic is empty, so there is nothing to audit",
        ]
    )
    failures = ran.stdout.str().partition("= FAILURES =")[2].partition("= short test summary")[0]
    fails, with_a_seed = failures.split("_ test_with_a_seed _")
    with_a_seed, something_else = with_a_seed.split("_ test_is_about_something_else _")
    assert "disk on fire" in fails
    assert "not about the next test" not in fails
    assert f"seed={seed_of('test_what_a_failure_tells.py::test_fails')}," in fails
    assert "rules: drop_response Produce cut_after_ms=20 probability=0.5" in fails
    assert "seed=7," in with_a_seed
    assert "wrote nothing to its log" in with_a_seed
    assert "oncelog's" not in something_else


def test_four_workers_never_clash(pytester: pytest.Pytester) -> None:
    """The same test in four processes at once: each has its own broker and names."""
    pytester.makepyfile(
        """
        def test_alone(
            worker_id, oncelog_broker, oncelog_topic, oncelog_group, oncelog_transactional_id, oncelog_producer,
            oncelog_consumer,
        ):
            oncelog_producer.send(oncelog_topic, worker_id)
            assert [record.value.decode() for record in oncelog_consumer.poll(60)] == [worker_id]
            with open("used", "a") as used:
                print(
                    oncelog_broker.bootstrap_servers, oncelog_broker.data_dir, oncelog_broker.pid,
                    oncelog_topic, oncelog_group, oncelog_transactional_id, file=used,
                )
        """
    )
    run_pytest(pytester, "-n", "4", "--dist", "each").assert_outcomes(passed=4)
    rows = [line.split() for line in (pytester.path / "used").read_text().splitlines()]
    assert [len(set(column)) for column in zip(*rows, strict=True)] == [4] * 6


def test_a_broker_for_every_test_and_its_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        oncelog_broker_scope = function
        oncelog_broker_config =
            num.partitions=3
            auto.create.topics.enable = false
        """
    )
    pytester.makepyfile(
        """
        import os, pytest

        before = []

        @pytest.mark.parametrize("number", range(2))
        def test_alone(number, oncelog_broker, oncelog_topic, oncelog_producer):
            assert oncelog_producer.partitions_for(oncelog_topic) == 3
            for pid, data in before:
                assert not data.exists()
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)
            before.append((oncelog_broker.pid, oncelog_broker.data_dir))
        """
    )
    run_pytest(pytester).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("ini", "complaint"),
    [
        (
            "oncelog_broker_scope = forever",
            "*oncelog_broker_scope = forever: unknown scope; there are session*",
        ),
        ("oncelog_broker_config = num.partitions", "*oncelog_broker_config: write KEY=VALUE*'num.partitions'*"),
    ],
)
def test_wrong_settings_are_named(pytester: pytest.Pytester, ini: str, complaint: str) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    ran = run_pytest(pytester)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([complaint])
