"""Fixtures for users' tests: a broker, fresh topics, clients, faults and audits (docs/testing.md).

pytest loads this module in every run of everybody who has oncelog installed (entry point `pytest11`), so it imports
nothing but pytest: what a fixture needs is loaded when a test first asks for it. No fixture is autouse, and all are
plain generators or functions, so that asyncio, anyio and unittest tests use them like any other.

    @pytest.mark.oncelog(faults=["drop-response Produce 0.1"])
    def test_orders(oncelog_topic, oncelog_proxy, oncelog_audit):
        run_my_service(bootstrap_servers=oncelog_proxy.bootstrap_servers, topic=oncelog_topic)
        oncelog_audit(oncelog_topic).assert_clean()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from oncelog.broker.process import Broker
    from oncelog.consumer.consumer import Consumer
    from oncelog.faults import FaultProxy
    from oncelog.producer.producer import Producer
    from oncelog.testing import Audits, Topics
    from oncelog.testing.wishes import Wishes

PREFIX = "oncelog_"
MARKER = "oncelog"
OPTION = "--oncelog-bootstrap"
SCOPE_INI = "oncelog_broker_scope"
CONFIG_INI = "oncelog_broker_config"
SCOPES = ("session", "package", "module", "class", "function")
RUN = "oncelog-run"
"""The name under which a run's state is registered."""

MAX_LOG_BYTES = 16 * 1024
"""What a report shows of a broker's log: its end."""

FAULTS_FOR_NOBODY = (
    "@pytest.mark.oncelog names faults, but nothing goes through oncelog_proxy: add that fixture, and give its "
    "bootstrap_servers to what you test"
)
CLOSE_TIMEOUT_S = 10.0
"""How long a fixture's client may take to close; its test is over."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _leave_assertions_alone(pluginmanager)
    group = parser.getgroup("oncelog", "tests with a Kafka broker")
    group.addoption(
        OPTION,
        metavar="HOST:PORT[,...]",
        help="run tests that use oncelog's fixtures on this cluster, such as Apache Kafka, instead of oncelog's broker",
    )
    parser.addini(SCOPE_INI, f"how long one broker serves: {', '.join(SCOPES)} (default: session)", default=SCOPES[0])
    parser.addini(CONFIG_INI, "settings of the broker, KEY=VALUE, one a line, under Kafka's names", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(faults, seed, partitions, configs, producer, consumer): what oncelog's fixtures are to be like "
        "(docs/testing.md)",
    )
    scope = config.getini(SCOPE_INI)
    if scope not in SCOPES:
        raise pytest.UsageError(f"{SCOPE_INI} = {scope}: unknown scope; there are {', '.join(SCOPES)}")
    _broker_config(config)
    config.pluginmanager.register(_Run(config), RUN)


def _leave_assertions_alone(pluginmanager: pytest.PytestPluginManager) -> None:
    """Keeps pytest from rewriting oncelog's own assertions, as it does in every package that brings a plugin.

    All modules would be compiled anew in the first run, and in each run where no bytecode is written. There is no
    public way to decline; where this one is gone, imports are slower, and that is all.
    """
    hook = getattr(pluginmanager, "rewrite_hook", None)
    marked, known = getattr(hook, "_must_rewrite", None), getattr(hook, "_marked_for_rewrite_cache", None)
    if isinstance(marked, set) and isinstance(known, dict):
        marked.discard("oncelog")
        known.clear()


class _Run:
    """What this process has started for its tests, and what it tells of the test that is running."""

    def __init__(self, config: pytest.Config) -> None:
        self.outside: str | None = config.getoption(OPTION)
        self.brokers: list[Broker] = []
        self.proxies: list[FaultProxy] = []
        self._log_starts: dict[Path, int] = {}

    def pytest_report_header(self) -> list[str]:
        return [f"oncelog: on the cluster at {self.outside}"] if self.outside else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._log_starts = {broker.log_path: _size(broker.log_path) for broker in self.brokers}
        has_faults = any(marker.kwargs.get("faults") for marker in item.own_markers if marker.name == MARKER)
        if has_faults and "oncelog_proxy" not in getattr(item, "fixturenames", ()):
            pytest.fail(FAULTS_FOR_NOBODY, pytrace=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """A broker that the test has killed serves whoever comes next, and lets the test's clients close."""
        for broker in self.brokers:
            if not broker.running:
                broker.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        outcome = yield
        report = outcome.get_result()
        if report.failed and self._concerns(item):
            report.sections += [("oncelog's broker", self._log_of(broker)) for broker in self._brokers_of(item)]
            report.sections += [("oncelog's faults", f"{proxy.report()}\n") for proxy in self.proxies]

    def _concerns(self, item: pytest.Item) -> bool:
        return bool(self.proxies) or any(name.startswith(PREFIX) for name in getattr(item, "fixturenames", ()))

    def _brokers_of(self, item: pytest.Item) -> list[Broker]:
        """Ours, or the one that stands in for it where a suite has its own `oncelog_broker`."""
        own: Any = getattr(item, "funcargs", {}).get("oncelog_broker")
        return self.brokers or ([own] if hasattr(own, "log_path") else [])

    def _log_of(self, broker: Broker) -> str:
        """What it wrote since the test began."""
        start, end = self._log_starts.get(broker.log_path, 0), _size(broker.log_path)
        if start >= end:
            return f"{broker!r} wrote nothing to its log\n"
        with open(broker.log_path, "rb") as log:
            log.seek(max(start, end - MAX_LOG_BYTES))
            return f"{broker!r}\n{log.read(MAX_LOG_BYTES).decode(errors='replace')}"


class OutsideBroker:
    """Stands for the cluster that `--oncelog-bootstrap` names. It is not ours: a test that would stop it is skipped."""

    running = True

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def start(self) -> NoReturn:
        self._skip("start")

    def stop(self) -> NoReturn:
        self._skip("stop")

    def kill(self) -> NoReturn:
        self._skip("kill")

    def restart(self) -> NoReturn:
        self._skip("restart")

    def _skip(self, what: str) -> NoReturn:
        pytest.skip(f"the broker at {self.bootstrap_servers} ({OPTION}) is not the tests' own to {what}")

    def __repr__(self) -> str:
        return f"<the cluster at {self.bootstrap_servers}>"


def _broker_scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini(SCOPE_INI)


def _broker_config(config: pytest.Config) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in config.getini(CONFIG_INI):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(f"{CONFIG_INI}: write KEY=VALUE, one a line, instead of {line!r}")
        settings[key.strip()] = value.strip()
    return settings


def _run_of(request: pytest.FixtureRequest) -> _Run:
    run = request.config.pluginmanager.get_plugin(RUN)
    assert isinstance(run, _Run)
    return run


def _wishes_of(request: pytest.FixtureRequest) -> Wishes:
    from oncelog.errors import InvalidConfig
    from oncelog.testing.wishes import Wishes

    try:
        return Wishes.of((marker.args, marker.kwargs) for marker in request.node.iter_markers(MARKER))
    except InvalidConfig as error:
        raise pytest.fail.Exception(error.message, pytrace=False) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture(scope=_broker_scope)
def oncelog_broker(request: pytest.FixtureRequest) -> Iterator[Broker | OutsideBroker]:
    """An `oncelog.Broker` in a process of its own, one for each xdist worker (ini option `oncelog_broker_scope`).

    `oncelog_broker.kill()` crashes it, `restart()` brings it back with its data under the same address. What a test
    leaves killed is started again when the test is over.
    """
    run = _run_of(request)
    if run.outside:
        yield OutsideBroker(run.outside)
        return
    from oncelog.broker.process import Broker

    with Broker(config=_broker_config(request.config)) as broker:
        run.brokers.append(broker)
        yield broker
        run.brokers.remove(broker)
        broker.kill()  # its data goes as well, so nothing is gained by waiting for a clean stop


@pytest.fixture(scope=_broker_scope)
def oncelog_bootstrap(oncelog_broker: Broker) -> str:
    """HOST:PORT of the broker, or of the cluster that `--oncelog-bootstrap` names, for any client."""
    return oncelog_broker.bootstrap_servers


@pytest.fixture
def oncelog_topics(request: pytest.FixtureRequest, oncelog_bootstrap: str) -> Iterator[Topics]:
    """Makes fresh topics: `orders = oncelog_topics("orders", partitions=3, configs={"cleanup.policy": "compact"})`."""
    from oncelog.testing import Topics

    wishes = _wishes_of(request)
    topics = Topics(oncelog_bootstrap, request.node.name, wishes.partitions, wishes.configs)
    yield topics
    if _run_of(request).outside:  # a broker of ours goes with all its topics
        topics.delete()


@pytest.fixture
def oncelog_topic(oncelog_topics: Topics) -> str:
    """The name of a fresh topic; `@pytest.mark.oncelog(partitions=3, configs={...})` says what it is like."""
    return oncelog_topics()


@pytest.fixture
def oncelog_group(request: pytest.FixtureRequest) -> str:
    """A group id that nobody else uses."""
    from oncelog.testing.names import fresh_name

    return fresh_name(request.node.name, "group")


@pytest.fixture
def oncelog_transactional_id(request: pytest.FixtureRequest) -> str:
    """A transactional id that nobody else uses."""
    from oncelog.testing.names import fresh_name

    return fresh_name(request.node.name, "transactions")


@pytest.fixture
def oncelog_producer(request: pytest.FixtureRequest, oncelog_bootstrap: str) -> Iterator[Producer]:
    """An `oncelog.Producer` straight to the broker, with the settings of `@pytest.mark.oncelog(producer={...})`.

    It is flushed and closed when the test is over.
    """
    from oncelog.producer.producer import Producer

    producer = Producer(oncelog_bootstrap, **_wishes_of(request).producer)
    yield producer
    producer.close(CLOSE_TIMEOUT_S)


@pytest.fixture
def oncelog_consumer(
    request: pytest.FixtureRequest, oncelog_bootstrap: str, oncelog_topic: str, oncelog_group: str
) -> Iterator[Consumer]:
    """An `oncelog.Consumer` of the group `oncelog_group`, subscribed to `oncelog_topic`, straight from the broker.

    It begins at the start of the topic and reads committed records, unless `@pytest.mark.oncelog(consumer={...})` says
    otherwise; `oncelog_consumer.subscribe([...])` replaces the topic.
    """
    from oncelog.consumer.consumer import Consumer

    settings = {"group_id": oncelog_group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    consumer = Consumer(oncelog_bootstrap, **{**settings, **_wishes_of(request).consumer})
    consumer.subscribe([oncelog_topic])
    yield consumer
    consumer.close(CLOSE_TIMEOUT_S)


@pytest.fixture
def oncelog_proxy(request: pytest.FixtureRequest, oncelog_bootstrap: str) -> Iterator[FaultProxy]:
    """A fault proxy in front of the broker: give `oncelog_proxy.bootstrap_servers` to what you test.

    It breaks what `@pytest.mark.oncelog(faults=["drop-response Produce 0.1"])` says (docs/faults.md). Its seed comes
    from the test's id, so that every run of the test meets the same faults.
    """
    from oncelog.errors import InvalidConfig
    from oncelog.faults import FaultProxy
    from oncelog.testing.names import seed_of

    run, wishes = _run_of(request), _wishes_of(request)
    try:
        rules = wishes.rules
    except InvalidConfig as error:
        raise pytest.fail.Exception(f"@pytest.mark.oncelog: {error.message}", pytrace=False) from None
    seed = seed_of(request.node.nodeid) if wishes.seed is None else wishes.seed
    with FaultProxy(oncelog_bootstrap, rules, seed=seed) as proxy:
        run.proxies.append(proxy)
        yield proxy
        run.proxies.remove(proxy)


@pytest.fixture
def oncelog_audit(oncelog_bootstrap: str) -> Audits:
    """Counts what was lost, duplicated or put out of order in a topic: `oncelog_audit(topic).assert_clean()`.

    Records are recognised by the id that they carry (header `oncelog-id`: `STREAM/NUMBER`), or by `id_of=...`.
    """
    from oncelog.testing import Audits

    return Audits(oncelog_bootstrap)
