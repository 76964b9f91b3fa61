"""Options and fixtures that every kind of test shares: which brokers to run on, and the brokers themselves.

`--brokers=oncelog,kafka` chooses the kinds for every test that takes the `broker` fixture. Without it, conformance
tests and those marked `on_both_brokers` run on both (that is their point) and the others on oncelog alone. One process
of each kind serves the whole session, so a test makes topics of its own (`new_topic`) and leaves the broker's settings
as it found them.
"""

from __future__ import annotations

import gc
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import lanes, parts, repeats
from tests.support.broker import OncelogBroker
from tests.support.compiled import stale_extensions
from tests.support.kafka import KafkaBroker
from tests.support.kinds import REAL, Kinds, kind_of
from tests.support.process import BrokerProcess
from tests.support.sizes import IS_SOAK, examples

TESTS = Path(__file__).parent
KINDS = ("oncelog", "kafka")
BOTH_BY_DEFAULT = "conformance"
BOTH_MARKER = "on_both_brokers"
# Tests write records with old timestamps; neither retention nor the expiry of producers may take them away meanwhile.
# Quotas look back three seconds instead of eleven, so that nobody waits long for a throttled client. The first member
# of a group need not wait for others, and members of KIP-848 groups, whose news come with heartbeats, send them often.
# Kafka looks for transactions that took too long every ten seconds; a test of them need not wait for that.
SETTINGS = {
    "log.retention.ms": "-1",
    "producer.id.expiration.check.interval.ms": "86400000",
    "quota.window.num": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}

# How long a case takes says nothing on a machine that does other things as well. Cases are the same in every run until
# their test changes, so that a run says something about a change; `make faults` makes up others each time.
settings.register_profile(
    "sized",
    max_examples=examples(100),
    deadline=None,
    derandomize=not IS_SOAK,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sized")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--brokers", help="comma-separated kinds of broker to test: oncelog, kafka")
    repeats.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; programs would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    stale = stale_extensions()
    if stale:
        names = ", ".join(extension.name for extension in stale)
        raise pytest.UsageError(f"older than their sources: {names}; run `make native`, or remove them")
    config.pluginmanager.register(Kinds(), "kinds")
    repeats.register(config)
    # kafka-python loads its schemas in a way that Python has deprecated.
    config.addinivalue_line("filterwarnings", "ignore:.*is deprecated. Use files:DeprecationWarning")


def _chosen_kinds(config: pytest.Config) -> tuple[str, ...] | None:
    option = config.getoption("--brokers")
    if option is None:
        return None
    kinds = tuple(kind.strip() for kind in option.split(","))
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise pytest.UsageError(f"--brokers: unknown kind {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}")
    return kinds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        is_for_both = metafunc.definition.get_closest_marker(BOTH_MARKER) is not None
        default = KINDS if is_for_both or BOTH_BY_DEFAULT in metafunc.definition.path.parts else KINDS[:1]
        metafunc.parametrize("broker", _chosen_kinds(metafunc.config) or default, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: lanes.order_of(item.path.relative_to(TESTS), kind_of(item) == REAL))
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "kafka_broker" in fixtures or parameters.get("broker") == "kafka":
            item.add_marker(pytest.mark.kafka)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> lanes.Lanes | None:
    """`make test` runs several groups of tests at a time: lanes, and everything else file by file."""
    if config.getoption("dist") != "loadfile":
        return None
    return lanes.Lanes(config, log, TESTS.name, repeats.real_tests(config))


def pytest_collection_finish() -> None:
    """Nothing that was collected goes before the end. Tests that collect garbage, and Python when it does so by itself,
    need not look at these hundreds of thousands of objects again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def oncelog_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with OncelogBroker(tmp_path_factory.mktemp("oncelog"), SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """A running broker of the kind that this run of the test is for."""
    running: BrokerProcess = request.getfixturevalue(f"{request.param}_broker")
    return running


@pytest.fixture
def both_brokers(request: pytest.FixtureRequest) -> dict[str, BrokerProcess]:
    """The chosen kinds side by side, to compare their answers: oncelog's with Apache Kafka's."""
    kinds = _chosen_kinds(request.config) or KINDS
    return {kind: request.getfixturevalue(f"{kind}_broker") for kind in kinds}


_topic_numbers = itertools.count(1)


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Topic names that no other test uses, readable in a broker's log."""
    test = request.node.originalname.removeprefix("test_")[:60]
    return lambda: f"{test}-{next(_topic_numbers)}"
