"""Run the same raw requests on several brokers and compare everything in the answers that must be the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, NamedTuple

from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient

# What two healthy brokers rightly differ in: identities and places, how busy they are, and the words of a message.
MASKED = frozenset(
    {
        "cluster_id",
        "controller_id",
        "documentation",
        "error_message",
        "host",
        "log_dir",
        "port",
        "producer_id",
        "throttle_time",
        "topic_id",
        "total_bytes",
        "usable_bytes",
    }
)
READS = frozenset({"describe_configs", "describe_client_quotas", "list_config_resources", "metadata"})
HEARSAY_S = 30.0
SORT_KEYS = ("name", "topic", "topic_name", "partition_index", "partition", "resource_name", "key", "group_id")


class Ask(NamedTuple):
    """One request of a script."""

    api: str
    version: int
    body: Message


def run(broker: BrokerProcess, asks: Iterable[Ask]) -> list[Message]:
    with RawClient(broker.address) as client:
        return [client.request(ask.api, ask.version, ask.body) for ask in asks]


def masked(value: Any, also: frozenset[str] = frozenset()) -> Any:
    """The answer without what may differ; lists of named things in a fixed order, as their order means nothing."""
    if isinstance(value, dict):
        return {key: masked(each, also) for key, each in value.items() if key not in MASKED and key not in also}
    if isinstance(value, list):
        return sorted((masked(each, also) for each in value), key=_order)
    return value


def _order(value: Any) -> str:
    if isinstance(value, dict):
        return str([value.get(key) for key in SORT_KEYS])
    return ""


def error_codes(value: Any) -> list[int]:
    """Every error code in an answer, in the order of the (masked, hence sorted) answer."""
    if isinstance(value, dict):
        own = [value["error_code"]] if "error_code" in value else []
        return own + [code for each in value.values() for code in error_codes(each)]
    if isinstance(value, list):
        return [code for each in value for code in error_codes(each)]
    return []


def assert_same(
    brokers: dict[str, BrokerProcess], asks: Callable[[], list[Ask]], codes: list[int] | None = None
) -> None:
    """Every broker answers with these error codes, and oncelog in every other field as Apache Kafka."""
    scripts = {kind: asks() for kind in brokers}
    answers = {kind: _answers(broker, scripts[kind]) for kind, broker in brokers.items()}
    for kind in brokers:
        if codes is not None:
            assert error_codes(answers[kind]) == codes, f"{kind}: {answers[kind]}"
    deadline = time.monotonic() + HEARSAY_S
    while not _are_equal(answers) and time.monotonic() < deadline:
        # Kafka answers a change as soon as the controller has it, and the broker hears of it a moment later.
        reads = list(takewhile(lambda ask: ask.api in READS, reversed(scripts["kafka"])))[::-1]
        if not reads:
            break
        answers["kafka"][-len(reads) :] = _answers(brokers["kafka"], reads)
    assert_equal(answers)


def _answers(broker: BrokerProcess, asks: list[Ask]) -> list[Message]:
    return [masked(answer) for answer in run(broker, asks)]


def _are_equal(answers: dict[str, Any]) -> bool:
    return len(answers) < 2 or answers["oncelog"] == answers["kafka"]


def assert_equal(answers: dict[str, Any]) -> None:
    """What oncelog said is what Apache Kafka said; nothing to compare where only one of them was asked."""
    if len(answers) == 2:
        assert answers["oncelog"] == answers["kafka"]
