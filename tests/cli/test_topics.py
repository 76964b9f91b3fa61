"""`oncelog topics` at a running broker: oncelog by default, Apache Kafka with `--brokers=oncelog,kafka`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Run

NewTopic = Callable[[], str]


def test_create_list_describe_delete(at_broker: Run, new_topic: NewTopic) -> None:
    name = new_topic()
    assert at_broker("topics", "create", name, "--partitions", "2").out == f"topic {name} created\n"
    rows = [line.split() for line in at_broker("topics", "list").lines]
    assert rows[0] == ["TOPIC", "PARTITIONS", "REPLICATION"]
    assert [name, "2", "1"] in rows
    described = at_broker("topics", "describe", name).lines
    assert described[0].startswith(f"{name}  id ")
    assert described[1].split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "FIRST", "OFFSET", "END", "OFFSET"]
    assert [line.split() for line in described[2:]] == [["0", "1", "1", "1", "0", "0"], ["1", "1", "1", "1", "0", "0"]]
    assert at_broker("topics", "delete", name).out == f"topic {name} deleted\n"
    assert name not in at_broker("topics", "list").out


def test_json(at_broker: Run, new_topic: NewTopic) -> None:
    name = new_topic()
    created = at_broker("--json", "topics", "create", name, "-o", "retention.ms=60000").json
    assert created == {
        "name": name,
        "topic_id": created["topic_id"],
        "created": True,
        "partitions": 1,
        "replication_factor": 1,
    }
    (listed,) = [topic for topic in at_broker("topics", "list", "--json").json if topic["name"] == name]
    assert listed["topic_id"] == created["topic_id"]
    (described,) = at_broker("topics", "describe", name, "--json").json
    assert described["configs"] == {"retention.ms": "60000"}
    assert described["partitions"][0]["replicas"] == [1]
    assert described["partitions"][0]["end_offset"] == 0


def test_alter(at_broker: Run, new_topic: NewTopic) -> None:
    name = new_topic()
    at_broker("topics", "create", name, "-o", "retention.ms=60000")
    at_broker("topics", "alter", name, "--partitions", "3", "-o", "cleanup.policy=compact", "--unset", "retention.ms")
    (described,) = at_broker("topics", "describe", name, "--json").json
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert len(described["partitions"]) == 3
    assert "nothing to alter" in at_broker("topics", "alter", name, code=2).err


def test_what_is_there_already_and_what_is_not(at_broker: Run, new_topic: NewTopic) -> None:
    name = new_topic()
    at_broker("topics", "create", name)
    again = at_broker("topics", "create", name, code=1)
    assert name in again.err
    assert "(TOPIC_ALREADY_EXISTS)" in again.err
    assert at_broker("topics", "create", name, "--if-not-exists").out == f"topic {name} exists already\n"
    missing = new_topic()
    assert "oncelog topics list" in at_broker("topics", "delete", missing, code=1).err
    at_broker("topics", "delete", missing, "--if-exists")
    assert f"topic '{missing}' does not exist" in at_broker("topics", "describe", missing, code=1).err


def test_the_brokers_words_about_a_bad_config_reach_the_user(at_broker: Run, new_topic: NewTopic) -> None:
    refusal = at_broker("topics", "create", new_topic(), "-o", "retention.ms=soon", code=1)
    assert "retention.ms" in refusal.err
    assert "(INVALID_CONFIG)" in refusal.err


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", ""),
        ("topics", "describe", ""),
        ("topics", "delete", ""),
        ("produce", ""),
        ("consume", ""),
        ("delete-records", "", "--all"),
        ("configs", "describe", "topic", ""),
        ("groups", "describe", ""),
        ("groups", "members", ""),
        ("groups", "delete", ""),
        ("producers", "list", ""),
        ("transactions", "describe", ""),
        ("transactions", "abort", "", "--yes"),
        ("audit", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_not_taken_for_a_bug(at_broker: Run, words: tuple[str, ...]) -> None:
    said = at_broker(*words, code=1)
    assert len(said.err.splitlines()) == 1
    assert "unexpected" not in said.err
