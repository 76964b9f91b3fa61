"""Replay of what only Kafka writes; the rest is tested with the plans that write it."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.controller.records import IGNORED, MetadataRecord, RecordType, decode_record, encode_record
from oncelog.controller.state import (
    _REPLAYS,
    ClientQuota,
    ConfigResource,
    ControllerState,
    Partition,
    ResourceType,
)
from oncelog.wire.codec import Message

TOPIC_ID = UUID(int=7)
DIRECTORY = UUID(int=99)


def replay(state: ControllerState, record_type: RecordType, body: Message) -> None:
    """As read from a log: what the writer left out has its default."""
    state.replay(decode_record(encode_record(MetadataRecord(record_type, body))))


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState()
    replay(state, RecordType.TOPIC, {"name": "orders", "topic_id": TOPIC_ID})
    first = {"partition_id": 0, "topic_id": TOPIC_ID, "replicas": [1], "isr": [1], "leader": 1}
    first |= {"leader_epoch": 4, "partition_epoch": 9, "directories": [DIRECTORY]}
    replay(state, RecordType.PARTITION, first)
    return state


def change(state: ControllerState, **changes: object) -> Partition:
    replay(state, RecordType.PARTITION_CHANGE, {"partition_id": 0, "topic_id": TOPIC_ID, **changes})
    return state.topics["orders"].partitions[0]


def test_a_change_leaves_what_it_does_not_name(state: ControllerState) -> None:
    assert change(state) == Partition(0, 1, 4, 10, (1,), (1,), (DIRECTORY,))


def test_every_named_leader_begins_an_epoch(state: ControllerState) -> None:
    assert change(state, leader=-1, isr=[]) == Partition(0, -1, 5, 10, (1,), (), (DIRECTORY,))
    assert change(state, leader=1, isr=[1]) == Partition(0, 1, 6, 11, (1,), (1,), (DIRECTORY,))
    assert change(state, leader=1).leader_epoch == 7


def test_replicas_and_directories_move(state: ControllerState) -> None:
    moved = change(state, replicas=[2, 3], directories=[UUID(int=5), UUID(int=6)])
    assert (moved.replicas, moved.directories) == ((2, 3), (UUID(int=5), UUID(int=6)))
    assert (moved.leader_epoch, moved.partition_epoch) == (4, 10)


def test_a_change_of_what_does_not_exist_raises(state: ControllerState) -> None:
    with pytest.raises(LookupError):
        replay(state, RecordType.PARTITION_CHANGE, {"partition_id": 1, "topic_id": TOPIC_ID})
    with pytest.raises(LookupError):
        replay(state, RecordType.REMOVE_TOPIC, {"topic_id": UUID(int=8)})


def test_a_config_without_a_value_is_gone(state: ControllerState) -> None:
    body = {"resource_type": ResourceType.TOPIC, "resource_name": "orders", "name": "retention.ms"}
    replay(state, RecordType.CONFIG, {**body, "value": "5"})
    assert state.configs(ConfigResource(ResourceType.TOPIC, "orders")) == {"retention.ms": "5"}
    replay(state, RecordType.CONFIG, {**body, "value": None})
    replay(state, RecordType.CONFIG, {**body, "value": None})
    assert not list(state.configured_resources())


def test_a_feature_of_level_0_is_off() -> None:
    state = ControllerState()
    for level in (1, 0, 0):
        replay(state, RecordType.FEATURE_LEVEL, {"name": "group.version", "feature_level": level})
    assert state.features == {}


def test_quotas_are_kept_until_they_are_removed() -> None:
    state = ControllerState()
    entity = [{"entity_type": "user", "entity_name": None}, {"entity_type": "client-id", "entity_name": "c"}]
    body = {"entity": entity, "key": "producer_byte_rate"}
    replay(state, RecordType.CLIENT_QUOTA, {**body, "value": 5.5, "remove": False})
    quota = ClientQuota((("client-id", "c"), ("user", None)), "producer_byte_rate")
    assert state.client_quotas == {quota: 5.5}
    replay(state, RecordType.CLIENT_QUOTA, {**body, "value": 0.0, "remove": True})
    assert state.client_quotas == {}


def test_every_type_is_replayed_ignored_or_about_transactions() -> None:
    """A type that is none of these would fail on the first folder that has it."""
    transactions = {RecordType.BEGIN_TRANSACTION, RecordType.END_TRANSACTION, RecordType.ABORT_TRANSACTION}
    assert sorted([*_REPLAYS, *IGNORED, *transactions]) == sorted(RecordType)


def test_what_is_ignored_changes_nothing() -> None:
    state = ControllerState()
    for record_type in IGNORED:
        state.replay(MetadataRecord(record_type, {}))
    assert vars(state) == vars(ControllerState())
