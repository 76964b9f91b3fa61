"""`oncelog groups` against a running group of librdkafka's, on oncelog and on Apache Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from oncelog.admin import Admin
from oncelog.cli.group_lag import GroupLag, measure
from oncelog.client.blocking import ConnectionLost
from oncelog.types import TopicPartition
from tests.cli.conftest import Run
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers

RECORDS = 10
PATIENCE_S = 60


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Two partitions with ten records each."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        for partition in (0, 1):
            producer.produce(name, str(number), partition=partition, timestamp=1_000 * (number + 1))
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def committed(broker: BrokerProcess, group: str, topic: str) -> Iterator[None]:
    """The group has read 4 and 10 records, and is empty."""
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): RECORDS})
    return


def member(broker: BrokerProcess, group: str, topic: str, protocol: str) -> ck.Consumer:
    """One that has its partitions."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    seen = 0
    while seen < 2 * RECORDS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "the group gave us nothing"
        assert message.error() is None, message.error()
        seen += 1
    return consumer


def test_lag_is_what_the_group_is_shown(
    at_broker: Run, broker: BrokerProcess, group: str, topic: str, committed: None
) -> None:
    """Five aborted records and two markers: offsets that nobody who reads committed records is behind by."""
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(PATIENCE_S)
    for count, end in ((5, producer.abort_transaction), (3, producer.commit_transaction)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"v", partition=1)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)
    for options, lag in (((), 6 + 3), (("--isolation", "read_uncommitted", "--exact"), 6 + 8)):
        (described,) = at_broker("groups", "describe", group, "--json", *options).json
        assert (described["lag"], described["lag_is_exact"]) == (lag, True)
        second = described["partitions"][1]
        assert (second["end"], second["lag"], second["lag_is_exact"]) == (RECORDS + 10, lag - 6, True)


def test_lag_of_an_empty_group(at_broker: Run, group: str, topic: str, committed: None) -> None:
    (described,) = at_broker("groups", "describe", group, "--json").json
    assert (described["group_id"], described["state"], described["lag"]) == (group, "Empty", RECORDS - 4)
    assert [(one["partition"], one["committed"], one["end"], one["lag"]) for one in described["partitions"]] == [
        (0, 4, RECORDS, 6),
        (1, RECORDS, RECORDS, 0),
    ]
    lines = at_broker("groups", "describe", group).lines
    assert lines[0].endswith("Empty  lag 6")
    assert lines[2].split()[:5] == [topic, "0", "4", "10", "6"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members(at_broker: Run, broker: BrokerProcess, group: str, topic: str, protocol: str) -> None:
    consumer = member(broker, group, topic, protocol)
    try:
        listed = {one["group_id"]: one for one in at_broker("groups", "list", "--json").json}
        assert (listed[group]["type"], listed[group]["state"]) == (protocol, "Stable")
        assert group not in at_broker("groups", "list", "--state", "Empty").out
        members = at_broker("groups", "members", group, "--json").json
        (one,) = members["members"]
        assert (one["client_id"], members["type"]) == ("reader", protocol)
        assert one["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        (described,) = at_broker("groups", "describe", group, "--json").json
        assert [part["client_id"] for part in described["partitions"]] == ["reader", "reader"]
        assert one["member_id"] in at_broker("groups", "members", group).out
        refused = at_broker("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute", code=1)
        assert "stop them first" in refused.err
        assert at_broker("groups", "delete", group, code=1).err.endswith("(NON_EMPTY_GROUP)\n")
    finally:
        consumer.close()


def test_watching_prints_again_and_again(at_broker: Run, group: str, committed: None) -> None:
    out = at_broker("groups", "describe", group, "--watch", "0", "--times", "2").out
    assert out.count(f"{group}  classic Empty  lag 6") == 2
    assert "0 records/s" in out


def test_watching_for_scripts_is_one_object_per_line(at_broker: Run, group: str, committed: None) -> None:
    lines = at_broker("groups", "describe", group, "--watch", "0", "--times", "2", "--json").lines
    first, second = map(json.loads, lines)
    assert first["group_id"] == second["group_id"] == group
    assert (first["lag"], first["records_per_second"]) == (6, None)
    assert second["records_per_second"] == 0
    assert second["wall_ms"] >= first["wall_ms"]


@pytest.mark.parametrize("as_json", [False, True])
def test_watching_says_that_the_broker_is_gone(
    at_broker: Run, group: str, committed: None, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    looks = iter([True, False, True])

    def measure_or_not(*arguments: Any, **more: Any) -> GroupLag:
        if not next(looks):
            raise ConnectionLost("the connection broke")
        return measure(*arguments, **more)

    monkeypatch.setattr("oncelog.cli.groups.measure", measure_or_not)
    words = ("groups", "describe", group, "--watch", "0", "--times", "3")
    if as_json:
        _, gone, back = map(json.loads, at_broker(*words, "--json").lines)
        assert gone["error"] == {
            "type": "ConnectionLost", "name": None, "code": None, "message": "the connection broke"
        }  # fmt: skip
        assert back["lag"] == 6
        return
    out = at_broker(*words).out
    assert out.count("no answer since ") == 1
    assert "the connection broke; asking again. What was last known:" in out
    assert out.count("lag 6") == 3


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-current",), [4, 10]),
        (("--to-offset", "7"), [7, 7]),
        (("--to-offset", "700"), [10, 10]),
        (("--shift-by", "-3"), [1, 7]),
        (("--shift-by=3",), [7, 10]),
        (("--to-datetime", "1970-01-01T00:00:05"), [4, 4]),
        (("--to-datetime", "1970-01-01T01:00:05+01:00"), [4, 4]),
        (("--to-datetime", "2970-01-01T00:00:05"), [10, 10]),
    ],
)
def test_reset(
    at_broker: Run, group: str, topic: str, committed: None, place: tuple[str, ...], expected: list[int]
) -> None:
    before = at_broker("groups", "describe", group, "--json").json
    words = ("groups", "reset-offsets", group, "--topic", topic, *place)
    planned = at_broker(*words, "--json").json
    assert [one["new"] for one in planned] == expected
    assert "nothing was changed" in at_broker(*words).out
    assert at_broker("groups", "describe", group, "--json").json == before
    at_broker(*words, "--execute")
    (after,) = at_broker("groups", "describe", group, "--json").json
    assert [one["committed"] for one in after["partitions"]] == expected


def test_reset_of_one_partition_of_all_topics(at_broker: Run, group: str, committed: None) -> None:
    words = ("groups", "reset-offsets", group, "--all-topics", "--partition", "1", "--to-earliest", "--execute")
    at_broker(*words)
    (after,) = at_broker("groups", "describe", group, "--json").json
    assert [one["committed"] for one in after["partitions"]] == [4, 0]


def test_delete_offsets_and_groups(at_broker: Run, group: str, topic: str, committed: None) -> None:
    at_broker("groups", "delete-offsets", group, "--topic", topic, "--partition", "0")
    (after,) = at_broker("groups", "describe", group, "--json").json
    assert [one["partition"] for one in after["partitions"]] == [1]
    assert at_broker("groups", "delete", group).out == f"group {group} deleted\n"
    at_broker("groups", "describe", group, code=1)
    assert "GROUP_ID_NOT_FOUND" in at_broker("groups", "delete", group, code=1).err


def test_mistakes(at_broker: Run, group: str, topic: str) -> None:
    reset = ("groups", "reset-offsets", group)
    assert "GROUP_ID_NOT_FOUND" in at_broker("groups", "describe", group, code=1).err
    assert "name a --topic" in at_broker(*reset, "--all-topics", "--to-latest", code=1).err
    assert "nothing to shift" in at_broker(*reset, "--topic", topic, "--shift-by", "1", code=1).err
    assert "and no 9" in at_broker(*reset, "--topic", topic, "--partition", "9", "--to-latest", code=1).err
    assert "is not a time" in at_broker(*reset, "--topic", topic, "--to-datetime", "yesterday", code=2).err
