"""A broker with thousands of groups starts anew: whoever asks at once, with whichever client, gets the right answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import confluent_kafka as ck
import pytest

import oncelog
from oncelog.admin import Admin
from oncelog.cli.main import main
from oncelog.types import TopicPartition
from tests.support.broker import OncelogBroker
from tests.support.groups import find_coordinator
from tests.support.raw import Message, RawClient

GROUPS = 5_000
AT_ONCE = 100
PARTITIONS = 4
PATIENCE_S = 60


def commit_request(group: str) -> Message:
    partitions = [
        {"partition_index": index, "committed_offset": 7 + index, "committed_metadata": ""}
        for index in range(PARTITIONS)
    ]
    return {"group_id": group, "topics": [{"name": "orders", "partitions": partitions}]}


@pytest.fixture(scope="module")
def full_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogBroker]:
    with OncelogBroker(tmp_path_factory.mktemp("many-groups")) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=PARTITIONS)
        with RawClient(broker.address) as client:
            find_coordinator(client, "any")
            for first in range(0, GROUPS, AT_ONCE):
                names = [f"group-{number}" for number in range(first, first + AT_ONCE)]
                sent = [client.send("offset_commit", 8, commit_request(name)) for name in names]
                for correlation_id in sent:
                    client.receive("offset_commit", 8, correlation_id)
        yield broker


def restart(broker: OncelogBroker, how: str) -> None:
    broker.kill() if how == "kill" else broker.stop()
    broker.start()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_command_line_right_after_the_start(
    full_broker: OncelogBroker, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    restart(full_broker, how)
    assert main(("-b", full_broker.bootstrap, "groups", "list", "--json")) == 0
    assert len(json.loads(capfd.readouterr().out)) == GROUPS
    restart(full_broker, how)
    assert main(("-b", full_broker.bootstrap, "groups", "describe", f"group-{GROUPS - 1}")) == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_clients_right_after_the_start(full_broker: OncelogBroker, how: str) -> None:
    restart(full_broker, how)
    with Admin(full_broker.bootstrap) as admin:
        offsets = admin.list_group_offsets(f"group-{GROUPS // 2}")
    assert [offsets[TopicPartition("orders", index)].offset for index in range(PARTITIONS)] == [7, 8, 9, 10]
    restart(full_broker, how)
    group = f"group-{GROUPS - 1}" if how == "stop" else f"group-{GROUPS - 2}"
    consumer = ck.Consumer({"bootstrap.servers": full_broker.bootstrap, "group.id": group})
    committed = consumer.committed([ck.TopicPartition("orders", index) for index in range(PARTITIONS)], PATIENCE_S)
    assert [each.offset for each in committed] == [7, 8, 9, 10]
    consumer.commit(offsets=[ck.TopicPartition("orders", 0, 70)], asynchronous=False)
    consumer.close()
    restart(full_broker, how)
    with oncelog.Consumer(full_broker.bootstrap, group_id=group) as ours:
        found = ours.committed(TopicPartition("orders", 0))[TopicPartition("orders", 0)]
    assert found is not None
    assert found.offset == 70
