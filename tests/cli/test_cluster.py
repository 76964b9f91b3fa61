"""`oncelog cluster`, `configs` and `delete-records`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from oncelog.admin import ClusterDescription, TopicDescription
from oncelog.cli.cluster import summarise
from oncelog.cli.main import main
from oncelog.client.metadata import Node, PartitionMetadata
from tests.cli.conftest import Run, Typed
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

NewTopic = Callable[[], str]
Settings = dict[str, dict[str, Any]]


@pytest.fixture
def topic(at_broker: Run, new_topic: NewTopic) -> str:
    """Two partitions with four records each, one second apart."""
    name = new_topic()
    at_broker("topics", "create", name, "--partitions", "2")
    lines = [
        f'{{"value": "{number}", "partition": {partition}, "timestamp_ms": {1_000 * (number + 1)}}}'
        for number in range(4)
        for partition in (0, 1)
    ]
    at_broker("produce", name, "--from-json", "--keep-partitions", stdin="\n".join(lines).encode())
    return name


# --- cluster ----------------------------------------------------------------------------------------------------------


@pytest.mark.on_both_brokers
def test_what_there_is(at_broker: Run, broker: BrokerProcess, topic: str) -> None:
    summary = at_broker("cluster", "--json").json
    (node,) = summary["brokers"]
    assert (node["host"], node["port"], node["answers"]) == (*broker.address, True)
    assert node["is_controller"] == (summary["controller_id"] == node["node_id"])
    assert summary["features"]["transaction.version"] == 2
    assert summary["topics"] >= 1
    assert summary["partitions"] >= 2
    assert node["leads"] + len(summary["offline_partitions"]) == summary["partitions"]
    lines = at_broker("cluster").lines
    assert lines[0] == f"cluster     {summary['cluster_id']}"
    assert lines[5].split() == ["BROKER", "ADDRESS", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "ANSWERS"]


def test_what_is_offline_or_behind() -> None:
    def partition(index: int, leader: int, isr: tuple[int, ...]) -> PartitionMetadata:
        return PartitionMetadata(index, leader, 0, (1, 2), isr, (), 0)

    nodes = (Node(1, "a", 9092), Node(2, "b", 9092, "rack-2"))
    partitions = (partition(0, 1, (1, 2)), partition(1, -1, ()), partition(2, 2, (2,)))
    topics = [
        TopicDescription("orders", UUID(int=1), False, partitions),
        TopicDescription("__x", UUID(int=2), True, ()),
    ]
    found = summarise(ClusterDescription("id", 2, nodes), topics, {"b": 1, "a": 2}, {1: None, 2: "refused"})
    assert found["offline_partitions"] == ["orders-1"]
    assert found["under_replicated_partitions"] == ["orders-2"]
    assert (found["topics"], found["internal_topics"], found["partitions"]) == (1, 1, 3)
    assert list(found["features"]) == ["a", "b"]
    assert [(one["leads"], one["replicas"], one["is_controller"]) for one in found["brokers"]] == [
        (1, 3, False),
        (1, 3, True),
    ]
    assert [(one["answers"], one["problem"]) for one in found["brokers"]] == [(True, None), (False, "refused")]


# --- configs ----------------------------------------------------------------------------------------------------------


def settings_until(at_broker: Run, is_as_wished: Callable[[Settings], bool], *whose: str) -> Settings:
    """What is described, once it is as wished: a broker of Apache Kafka hears of a change a little later."""
    found: Settings = {}

    def look() -> bool:
        found.clear()
        found.update({one["name"]: one for one in at_broker("configs", "describe", *whose, "--json").json})
        return is_as_wished(found)

    eventually(look, f"the settings of {whose} are as wished")
    return found


@pytest.mark.on_both_brokers
def test_settings_of_a_topic(at_broker: Run, topic: str) -> None:
    said = at_broker("configs", "alter", "topic", topic, "-o", "retention.ms=60000", "-o", "cleanup.policy=delete").out
    assert said == f"topic {topic}: altered\n"
    at_broker("configs", "alter", "topic", topic, "--append", "cleanup.policy=compact")
    found = settings_until(
        at_broker, lambda found: "compact" in found.get("cleanup.policy", {}).get("value", ""), "topic", topic
    )
    assert (found["retention.ms"]["value"], found["retention.ms"]["source"]) == ("60000", "DYNAMIC_TOPIC_CONFIG")
    assert set(found["cleanup.policy"]["value"].split(",")) == {"compact", "delete"}
    assert not any(one["is_default"] for one in found.values())
    everything = {one["name"] for one in at_broker("configs", "describe", "topic", topic, "--all", "--json").json}
    assert everything > set(found)
    rows = [line.split() for line in at_broker("configs", "describe", "topic", topic).lines]
    assert ["retention.ms", "60000", "dynamic", "topic"] in rows
    at_broker("configs", "alter", "topic", topic, "--subtract", "cleanup.policy=compact", "--unset", "retention.ms")
    after = settings_until(
        at_broker,
        lambda found: found.get("retention.ms", {}).get("source") != "DYNAMIC_TOPIC_CONFIG",
        "topic",
        topic,
    )
    assert after["cleanup.policy"]["value"] == "delete"


@pytest.mark.on_both_brokers
def test_checking_changes_nothing(at_broker: Run, topic: str) -> None:
    check = ("configs", "alter", "topic", topic, "--check", "-o")
    assert "would be accepted; nothing was changed" in at_broker(*check, "retention.ms=61000").out
    assert "(INVALID_CONFIG)" in at_broker(*check, "retention.ms=x", code=1).err
    at_broker("configs", "alter", "topic", topic, "-o", "segment.ms=60000")
    found = settings_until(at_broker, lambda found: "segment.ms" in found, "topic", topic)
    assert "retention.ms" not in found or found["retention.ms"]["value"] != "61000"


@pytest.mark.on_both_brokers
def test_settings_of_brokers_groups_and_clients(at_broker: Run, topic: str) -> None:
    node_id = str(at_broker("cluster", "--json").json["brokers"][0]["node_id"])
    names = {one["name"] for one in at_broker("configs", "describe", "broker", node_id, "--all", "--json").json}
    assert {"num.partitions", "log.retention.ms"} <= names
    at_broker("configs", "alter", "group", topic, "-o", "consumer.session.timeout.ms=50000")
    key = "consumer.session.timeout.ms"
    found = settings_until(
        at_broker, lambda found: found.get(key, {}).get("source") == "DYNAMIC_GROUP_CONFIG", "group", topic
    )
    assert found[key]["value"] == "50000"
    at_broker("configs", "alter", "client-id", topic, "-o", "producer_byte_rate=1048576")
    limits = settings_until(at_broker, bool, "client-id", topic)
    assert limits == {"producer_byte_rate": {"name": "producer_byte_rate", "value": 1048576}}
    at_broker("configs", "alter", "client-id", topic, "--unset", "producer_byte_rate")
    settings_until(at_broker, lambda found: not found, "client-id", topic)
    assert "has no limits of its own" in at_broker("configs", "describe", "client-id", topic).out


def test_mistakes_of_configs(at_broker: Run, topic: str) -> None:
    assert "which topic?" in at_broker("configs", "describe", "topic", code=2).err
    assert "named by its node id" in at_broker("configs", "describe", "broker", "one", code=2).err
    assert "nothing to alter" in at_broker("configs", "alter", "topic", topic, code=2).err
    assert "there is no 'table'" in at_broker("configs", "describe", "table", "t", code=2).err
    alter = ("configs", "alter", "client-id", "web")
    assert "must be a number, not 'fast'" in at_broker(*alter, "-o", "producer_byte_rate=fast", code=2).err
    assert "not a list" in at_broker(*alter, "--append", "a=b", code=2).err


# --- delete-records ---------------------------------------------------------------------------------------------------


def left(at_broker: Run, topic: str, partition: int) -> list[str]:
    words = ("--partition", str(partition), "--from-beginning", "--until-end")
    return at_broker("consume", topic, *words).lines


@pytest.mark.on_both_brokers
@pytest.mark.parametrize(
    ("until", "first", "second"),
    [
        (("--partition", "0", "--before-offset", "1"), ["1", "2", "3"], ["0", "1", "2", "3"]),
        (("--before-offset", "3"), ["3"], ["3"]),
        (("--before-datetime", "1970-01-01T00:00:03"), ["2", "3"], ["2", "3"]),
        (("--before-datetime", "2970-01-01T00:00:00"), [], []),
        (("--all",), [], []),
        (("--all", "--partition", "1"), ["0", "1", "2", "3"], []),
    ],
)
def test_what_is_deleted(
    at_broker: Run, topic: str, until: tuple[str, ...], first: list[str], second: list[str]
) -> None:
    told = at_broker("delete-records", topic, *until, "--json").json
    assert (left(at_broker, topic, 0), left(at_broker, topic, 1)) == (first, second)
    kept = {0: first, 1: second}
    assert all(one["first_offset"] == 4 - len(kept[one["partition"]]) and one["was"] == 0 for one in told)


def test_nothing_is_deleted_if_not_all_can_be(at_broker: Run, topic: str) -> None:
    beyond = at_broker("delete-records", topic, "--before-offset", "5", code=1)
    assert f"{topic}-0 ends at offset 4, before 5; nothing was deleted" in beyond.err
    assert "no partition 7" in at_broker("delete-records", topic, "--partition", "7", "--all", code=1).err
    assert at_broker("delete-records", topic, code=2).out == ""
    assert len(left(at_broker, topic, 0)) == 4


@pytest.mark.parametrize(
    "words",
    [
        ("delete-records", "{topic}", "--all"),
        ("topics", "delete", "{topic}"),
        ("groups", "delete-offsets", "{topic}", "--topic", "{topic}"),
        ("groups", "delete", "{topic}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_people_are_asked_before_something_is_gone(
    at_broker: Run, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    words = tuple(word.format(topic=topic) for word in words)
    at_broker("groups", "reset-offsets", topic, "--topic", topic, "--to-latest", "--execute")

    def asked(answer: str, *more: str) -> int:
        monkeypatch.setattr("oncelog.cli.output.sys.stdin", Typed(answer))
        return main(["-b", broker.bootstrap, *words, *more])

    assert asked("n\n") == 1
    assert len(left(at_broker, topic, 0)) == 4
    assert at_broker("groups", "describe", topic, "--json").json[0]["partitions"] != []
    assert asked("y\n") == 0 if words[0] != "topics" else asked("n\n", "--yes") == 0
