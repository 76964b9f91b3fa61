"""Addresses in answers: all of them are replaced, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.errors import UnsupportedVersion
from oncelog.faults.rewrite import FIRST_WITH_ADDRESSES, Address, rewrite_response
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import MalformedMessage
from oncelog.wire.frame import RequestHeader, decode_response_header, encode_response
from oncelog.wire.schema import load_schema

NODES = [Address("broker-a.example.org", 9092), Address("broker-b.example.org", 9092), Address("10.0.0.3", 19094)]
LOCAL = {node: Address("127.0.0.1", 40_000 + index) for index, node in enumerate(NODES)}

ENDPOINTS = [
    {"node_id": index, "host": node.host, "port": node.port, "rack": f"rack-{index}"}
    for index, node in enumerate(NODES)
]
COORDINATORS = [
    {"key": f"group-{index}", "node_id": index, "host": node.host, "port": node.port, "error_message": None}
    for index, node in enumerate(NODES)
]


def versions(api: ApiKey) -> range:
    valid = load_schema(f"{api.schema_prefix}Response").valid
    return range(valid.lowest, valid.highest + 1)


def message_with_nodes(api: ApiKey, version: int) -> dict[str, Any]:
    match api:
        case ApiKey.METADATA:
            partitions = [{"partition_index": 0, "leader_id": 2, "replica_nodes": [0, 1, 2], "isr_nodes": [2, 1]}]
            topics = [{"name": "orders", "partitions": partitions}]
            return {"brokers": ENDPOINTS, "controller_id": 1, "cluster_id": "cluster", "topics": topics}
        case ApiKey.FIND_COORDINATOR if version >= 4:
            return {"coordinators": COORDINATORS}
        case ApiKey.FIND_COORDINATOR:
            return {"node_id": 1, "host": NODES[1].host, "port": NODES[1].port, "error_message": None}
        case ApiKey.DESCRIBE_CLUSTER:
            brokers = [{**node, "broker_id": node["node_id"]} for node in ENDPOINTS]
            for broker in brokers:
                del broker["node_id"]
            return {"cluster_id": "cluster", "controller_id": 1, "brokers": brokers}
        case ApiKey.PRODUCE:
            partition = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": {"leader_id": 2}}
            return {"responses": [{"partition_responses": [partition]}], "node_endpoints": ENDPOINTS}
        case _:
            partition = {"partition_index": 0, "error_code": 6, "high_watermark": 5, "records": b"some records"}
            return {"responses": [{"partitions": [partition]}], "node_endpoints": ENDPOINTS}


def response(api: ApiKey, version: int, message: dict[str, Any]) -> memoryview:
    body = codec.encode(f"{api.schema_prefix}Response", version, message)
    return memoryview(encode_response(RequestHeader(api, version, 42, None), body))[4:]


def decoded(api: ApiKey, version: int, frame: bytes | memoryview) -> dict[str, Any]:
    correlation_id, position = decode_response_header(api, version, memoryview(frame))
    assert correlation_id == 42
    return codec.decode_exactly(f"{api.schema_prefix}Response", version, frame, position)


def addresses(message: Any) -> set[Address]:
    """Every (host, port) anywhere in a message."""
    if isinstance(message, list):
        return set().union(*map(addresses, message))
    if not isinstance(message, dict):
        return set()
    inside = set().union(*map(addresses, message.values()))
    return inside | ({Address(message["host"], message["port"])} if message.get("host") else set())


CASES = [
    (api, version) for api in map(ApiKey, FIRST_WITH_ADDRESSES) for version in versions(api)
    if version >= FIRST_WITH_ADDRESSES[api]
]  # fmt: skip


@pytest.mark.parametrize(("api", "version"), CASES)
def test_clients_of_several_nodes_are_led_to_the_ports_that_stand_for_them(api: ApiKey, version: int) -> None:
    frame = response(api, version, message_with_nodes(api, version))
    rewritten = decoded(api, version, rewrite_response(api, version, frame, LOCAL.__getitem__))
    named = addresses(decoded(api, version, frame))
    assert len(named) == (1 if api is ApiKey.FIND_COORDINATOR and version < 4 else 3)
    assert addresses(rewritten) == {LOCAL[node] for node in named}


@pytest.mark.parametrize(("api", "version"), CASES)
def test_nothing_but_the_addresses_changes(api: ApiKey, version: int) -> None:
    frame = response(api, version, message_with_nodes(api, version))
    assert rewrite_response(api, version, frame, lambda address: address) == frame
    back = {local: node for node, local in LOCAL.items()}
    there = rewrite_response(api, version, frame, LOCAL.__getitem__)
    assert rewrite_response(api, version, memoryview(there), back.__getitem__) == frame


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_answers_that_name_no_node_pass_unchanged(api: ApiKey) -> None:
    for version in versions(api):
        message = message_with_nodes(api, version)
        del message["node_endpoints"]
        frame = response(api, version, message)
        assert rewrite_response(api, version, frame, LOCAL.__getitem__) is frame


def test_a_coordinator_that_does_not_exist_has_no_address_to_replace() -> None:
    for version in range(4):
        nowhere = {"error_code": 15, "node_id": -1, "host": "", "port": -1, "error_message": None}
        frame = response(ApiKey.FIND_COORDINATOR, version, nowhere)
        assert rewrite_response(ApiKey.FIND_COORDINATOR, version, frame, LOCAL.__getitem__) is frame


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.API_VERSIONS, 1_234])
def test_other_answers_are_not_even_read(api_key: int) -> None:
    frame = memoryview(b"\x00\x00\x00\x2anot a message at all")
    assert rewrite_response(api_key, 3, frame, LOCAL.__getitem__) is frame


def test_a_version_that_cannot_be_read_is_refused_rather_than_passed_on() -> None:
    frame = memoryview(b"\x00\x00\x00\x2a\x00 from the future")
    with pytest.raises(UnsupportedVersion):
        rewrite_response(ApiKey.METADATA, 99, frame, LOCAL.__getitem__)


def test_rubbish_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        rewrite_response(ApiKey.METADATA, 12, memoryview(b"\x00\x00\x00\x2a\x00 rubbish"), LOCAL.__getitem__)


def test_addresses_are_written_as_bootstrap_servers_are() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("example.org", 9092)) == "example.org:9092"
