"""Metadata, group and transaction records as Apache Kafka 4.3.1's own classes write them (kio does not carry these)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from oncelog.wire.codec import decode_exactly, encode
from oncelog.wire.schema import ZERO_UUID
from tests.wire.kio_bridge import covers

ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
PARTITION = {
    "partition_id": 3,
    "topic_id": ID,
    "replicas": [1, 2],
    "isr": [1],
    "leader": 1,
    "leader_epoch": 4,
    "partition_epoch": 5,
    "directories": [ID, ZERO_UUID],
}
SCRAM = {"name": "u", "mechanism": 1, "salt": b"\1\2", "stored_key": b"\3", "iterations": 4096}
QUOTA = {"entity": [{"entity_type": "user", "entity_name": None}], "key": "producer_byte_rate", "value": 1.5}
OFFSET = {"offset": 9, "leader_epoch": 1, "metadata": "m", "commit_timestamp": 77}
ENDPOINT = {"name": "L", "host": "h", "port": 50000, "security_protocol": 0}
GROUP = {
    "protocol_type": "consumer",
    "generation": 3,
    "protocol": None,
    "leader": "l",
    "members": [{"member_id": "m", "subscription": b"\1"}],
}
TRANSACTION = {
    "producer_id": 5,
    "producer_epoch": 1,
    "transaction_timeout_ms": 60,
    "transaction_status": 1,
    "transaction_partitions": [{"topic": "t", "partition_ids": [1, 2]}],
}

CASES: list[tuple[str, int, dict[str, Any], str]] = [
    ("TopicRecord", 0, {"name": "orders", "topic_id": ID}, "076f72646572730102030405060708090a0b0c0d0e0f1000"),
    (
        "PartitionRecord",
        1,
        PARTITION,
        "000000030102030405060708090a0b0c0d0e0f1003000000010000000202000000010101000000010000000400000005"
        "030102030405060708090a0b0c0d0e0f100000000000000000000000000000000000",
    ),
    (
        "PartitionRecord",
        2,
        PARTITION | {"leader_recovery_state": 1, "eligible_leader_replicas": [], "last_known_elr": [9]},
        "000000030102030405060708090a0b0c0d0e0f1003000000010000000202000000010101000000010000000400000005"
        "030102030405060708090a0b0c0d0e0f10000000000000000000000000000000000300010101010102050200000009",
    ),
    (
        "PartitionChangeRecord",
        0,
        {"partition_id": 1, "topic_id": ID, "leader": 7, "isr": [7]},
        "000000010102030405060708090a0b0c0d0e0f100200050200000007010400000007",
    ),
    (
        "ConfigRecord",
        0,
        {"resource_type": 2, "resource_name": "orders", "name": "retention.ms", "value": None},
        "02076f72646572730d726574656e74696f6e2e6d730000",
    ),
    (
        "ProducerIdsRecord",
        0,
        {"broker_id": 1, "broker_epoch": 2, "next_producer_id": 1000},
        "00000001000000000000000200000000000003e800",
    ),
    (
        "FeatureLevelRecord",
        0,
        {"name": "transaction.version", "feature_level": 2},
        "147472616e73616374696f6e2e76657273696f6e000200",
    ),
    ("UserScramCredentialRecord", 0, SCRAM, "0275010301020203010000100000"),
    ("ClientQuotaRecord", 0, QUOTA, "02057573657200001370726f64756365725f627974655f726174653ff80000000000000000"),
    ("OffsetCommitKey", 0, {"group": "g", "topic": "t", "partition": 2}, "00016700017400000002"),
    ("OffsetCommitValue", 3, OFFSET, "00000000000000090000000100016d000000000000004d"),
    (
        "OffsetCommitValue",
        4,
        OFFSET | {"topic_id": ID},
        "000000000000000900000001026d000000000000004d0100100102030405060708090a0b0c0d0e0f10",
    ),
    (
        "ConsumerGroupMemberMetadataValue",
        0,
        {"client_id": "c", "client_host": "h", "subscribed_topic_names": ["t"], "classic_member_metadata": None},
        "01010263026802027401ffffffff0101000100",
    ),
    (
        "ConsumerGroupMemberMetadataValue",
        0,
        {"client_id": "c", "classic_member_metadata": {"session_timeout_ms": 5, "supported_protocols": []}},
        "01010263010101ffffffff0101000701000000050100",
    ),
    # A default of JSON null is "no default" to Kafka's generator: an empty struct, not null.
    ("ConsumerGroupMemberMetadataValue", 0, {"client_id": "c"}, "01010263010101ffffffff0100"),
    (
        "GroupMetadataValue",
        4,
        GROUP,
        "09636f6e73756d65720000000300026cffffffffffffffff02026d000101ffffffff000000000201010000",
    ),
    (
        "TransactionLogValue",
        1,
        TRANSACTION,
        "000000000000000500010000003c01020274030000000100000002000000000000000000000000000000000000",
    ),
    (
        "TransactionLogValue",
        1,
        {"producer_id": 5, "transaction_partitions": None, "next_producer_id": 8, "client_transaction_version": 2},
        "0000000000000005000000000000000000000000000000000000000000000000020108000000000000000802020002",
    ),
    (
        "RegisterBrokerRecord",
        3,
        {"broker_id": 1, "incarnation_id": ID, "end_points": [ENDPOINT], "log_dirs": [ID]},
        "00000001000102030405060708090a0b0c0d0e0f10000000000000000002024c0268c35000000001010100010011020102030405060708"
        "090a0b0c0d0e0f10",
    ),
]


@pytest.mark.parametrize(("name", "version", "message", "kafka_bytes"), CASES)
def test_records_are_byte_for_byte_kafkas(name: str, version: int, message: dict[str, Any], kafka_bytes: str) -> None:
    assert encode(name, version, message).hex() == kafka_bytes
    assert covers(decode_exactly(name, version, bytes.fromhex(kafka_bytes)), message)
