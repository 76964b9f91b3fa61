"""Whatever another library calls a call or its argument: our classes have it, or say what takes its place."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import oncelog
from oncelog.client import foreign_calls
from oncelog.client.hinting import Calls

pytestmark = pytest.mark.deterministic


class Pair(NamedTuple):
    ours: type[Any]
    calls: Calls
    theirs: tuple[type[Any], ...]


PAIRS = [
    Pair(oncelog.Producer, foreign_calls.PRODUCER, (confluent_kafka.Producer, kafka.KafkaProducer)),
    Pair(oncelog.AsyncProducer, foreign_calls.ASYNC_PRODUCER, (aiokafka.AIOKafkaProducer,)),
    Pair(oncelog.Consumer, foreign_calls.CONSUMER, (confluent_kafka.Consumer, kafka.KafkaConsumer)),
    Pair(oncelog.AsyncConsumer, foreign_calls.ASYNC_CONSUMER, (aiokafka.AIOKafkaConsumer,)),
    Pair(oncelog.Admin, foreign_calls.ADMIN, (confluent_kafka.admin.AdminClient, kafka.KafkaAdminClient)),
]
CONFLUENTS = {
    confluent_kafka.Producer: {"send_offsets_to_transaction": ["positions", "group_metadata", "timeout"]},
    confluent_kafka.Consumer: {
        "commit": ["message", "offsets", "asynchronous"],
        "committed": ["partitions", "timeout"],
        "offsets_for_times": ["partitions", "timeout"],
        "position": ["partitions"],
        "subscribe": ["topics", "on_assign", "on_revoke", "on_lost"],
    },
}
"""Arguments of calls that are written in C, by their documentation."""
POLL = {"poll": foreign_calls.POLL}

each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.ours.__name__)


def calls_of(kind: type[Any]) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]


def arguments_of(kind: type[Any], name: str) -> list[str]:
    known = CONFLUENTS.get(kind, {}).get(name)
    if known is not None:
        return known
    call = getattr(kind, name)
    if not inspect.isfunction(call):  # written in C
        return []
    parameters = inspect.signature(call).parameters.values()
    return [each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)][1:]


@each_pair
def test_every_call_of_another_library_is_there_or_has_a_remedy(pair: Pair) -> None:
    for theirs in pair.theirs:
        assert len(calls_of(theirs)) > 10
        missing = {name for name in calls_of(theirs) if not hasattr(pair.ours, name)} - pair.calls.methods.keys()
        assert not missing, theirs
        for name in calls_of(theirs):
            if not hasattr(pair.ours, name):
                with pytest.raises(AttributeError, match=rf"^{pair.ours.__name__} has no {name}\(\): ..."):
                    getattr(pair.ours, name)


@each_pair
def test_every_argument_of_another_library_is_there_or_has_a_remedy(pair: Pair) -> None:
    for theirs in pair.theirs:
        for name in {*calls_of(theirs)} & {*dir(pair.ours)}:
            ours = inspect.signature(getattr(pair.ours, name)).parameters
            by_name = {one for one, each in ours.items() if each.kind is not each.VAR_POSITIONAL}
            remedies = {**pair.calls.arguments.get(name, {}), **POLL.get(name, {})}
            assert not {*arguments_of(theirs, name)} - by_name - remedies.keys(), f"{theirs.__name__}.{name}"


@each_pair
def test_what_a_remedy_names_exists(pair: Pair) -> None:
    told = [*pair.calls.methods.values(), *(text for one in pair.calls.arguments.values() for text in one.values())]
    for text in told:
        for name in re.findall(r"(?<![.\w])([a-z_]+)\(", text):
            assert hasattr(pair.ours, name) or name == "create_topic", text
    for name, remedies in pair.calls.arguments.items():
        ours = inspect.signature(getattr(pair.ours, name)).parameters
        assert not {one for one in remedies if one in ours and ours[one].kind is not ours[one].VAR_POSITIONAL}
        for text in remedies.values():
            word = re.match(r"use ([a-z_]+)(?:$|[,;] |, )", text)
            assert word is None or word[1] in ours, f"{name}: {text}"


@each_pair
def test_they_do_not_show(pair: Pair) -> None:
    assert not pair.calls.methods.keys() & {*dir(pair.ours)}
    assert not pair.calls.methods.keys() & {name for name, _ in inspect.getmembers(pair.ours)}


def test_classes_of_other_libraries() -> None:
    known = {"NoBrokersAvailable"}  # of kafka-python before 3.0
    for module in ("confluent_kafka", "confluent_kafka.admin", "kafka", "kafka.admin", "kafka.errors", "aiokafka"):
        known |= vars(importlib.import_module(module)).keys()
    assert foreign_calls.NAMES.keys() <= known
    assert not foreign_calls.NAMES.keys() & {*dir(oncelog)}
    for text in foreign_calls.NAMES.values():
        for name in re.findall(r"oncelog\.(\w+)", text):
            assert hasattr(oncelog, name)
    with pytest.raises(
        AttributeError, match=r"^module 'oncelog' has no attribute 'KafkaProducer': use oncelog.Producer$"
    ):
        oncelog.KafkaProducer  # noqa: B018


def test_words_of_other_calls_say_what_process_and_admin_call_them() -> None:
    with pytest.raises(TypeError, match=r"^process\(\) takes no group_id: use group$"):
        oncelog.process("orders", list, group_id="g", bootstrap_servers="a:1", transactional_id="t")  # type: ignore[call-arg]
    admin = oncelog.Admin("127.0.0.1:1")
    with pytest.raises(TypeError, match=r"give the changes by name: alter_configs\("):
        admin.alter_configs("topic", "orders", {"retention.ms": 1})  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"give all but the name by name: create_topic\("):
        admin.create_topic("orders", 3)  # type: ignore[misc]
