"""Every field of every request at its extremes, in every version: answered or refused, never a bug.

What a client sends is added to, stored, written to the logs of coordinators and answered again; any of that may not fit
where it goes. A broker without a socket is asked, with time going on, so that what was stored is worked with as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.request import Pending
from oncelog.wire.api import SUPPORTED, ApiKey
from oncelog.wire.codec import MalformedMessage, Message, encode
from oncelog.wire.frame import encode_request
from oncelog.wire.layout import plain_fields, tagged_fields
from oncelog.wire.schema import ZERO_UUID, Field, load_schema
from oncelog.wire.versions import VersionRange
from tests.broker.support import NOW_MS, Desk, FailingStorage, made
from tests.support.batches import make_batch

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16}
NEVER = VersionRange(1, 0)
LONGEST = 2**15 - 1
TEXTS = ("", "x" * LONGEST, "\u20ac" * (LONGEST // 3), "a.b_c-" * 500, "\x00", "-9", "9" * 400)
OTHERS: dict[str, list[Any]] = {
    "uuid": [ZERO_UUID, UUID(int=2**128 - 1)],
    "float64": [float("nan"), float("inf"), -1.0, 1e308],
    "bytes": [b"", b"\xff" * 1000],
}
DAY_MS = 86_400_000

# What makes a request one that is worked on, where its default does not.
NAMES = {
    "name": "orders",
    "topic": "orders",
    "topic_names": "orders",
    "resource_name": "orders",
    "resource_type": 2,
    "group_id": "group",
    "group": "group",
    "groups": "group",
    "groups_names": "group",
    "group_ids": "group",
    "key": "group",
    "coordinator_keys": "group",
    "topic_id": UUID(int=1),
    "transactional_id": "tx",
    "v3_and_below_transactional_id": "tx",
    "transactional_ids": "tx",
    "protocol_type": "consumer",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "client_software_name": "test",
    "client_software_version": "1",
    "records": make_batch([b"value"]),
    "acks": -1,
    "num_partitions": 1,
    "replication_factor": 1,
    "entity_type": "client-id",
    "member_epoch": 0,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
}


@pytest.fixture
def desk() -> Iterator[Desk]:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    desk = Desk(FailingStorage(), "/data", auto_create_topics_enable="false", **settings)
    desk.create("orders")
    for key_type in (0, 1):
        desk.ask("find_coordinator", 1, {"key": "group", "key_type": key_type})
    yield desk
    desk.broker.stop(NOW_MS)


def extremes(field: Field, version: int) -> list[Any]:
    values: list[Any] = []
    if field.type in BITS:
        bits = BITS[field.type]
        values = [0, 2**bits - 1] if field.type == "uint16" else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -1, 0]
    elif field.type == "string":
        values = list(TEXTS)
    elif field.is_array:
        values = [[]]
    else:
        values = OTHERS.get(field.type, [])
    return [*values, None] if field.nullable.includes(version) and not field.is_struct else values


def ordinary(field: Field, version: int) -> Any:
    if field.name == "assignments":
        return []
    if field.is_array:
        element = field._replace(type=field.element_type, default_text="", nullable=NEVER)
        return [ordinary(element, version)]
    if field.is_struct:
        return None if field.nullable.includes(version) else plain(field.fields, version)
    return NAMES.get(field.name, field.default())


def fields_of(fields: tuple[Field, ...], version: int) -> list[Field]:
    return [*plain_fields(fields, version), *tagged_fields(fields, version)]


def plain(fields: tuple[Field, ...], version: int) -> Message:
    return {field.name: ordinary(field, version) for field in fields_of(fields, version)}


def variations(fields: tuple[Field, ...], version: int) -> Iterator[Message]:
    """The ordinary request, with one field of it at an extreme."""
    base = plain(fields, version)
    yield base
    for field in fields_of(fields, version):
        for value in extremes(field, version):
            yield base | {field.name: value}
        if field.is_struct and field.is_array:
            for element in variations(field.fields, version):
                yield base | {field.name: [element]}
        elif field.is_struct:
            for element in variations(field.fields, version):
                yield base | {field.name: element}
        elif field.is_array:
            for value in extremes(field._replace(type=field.element_type), version):
                if value is not None:
                    yield base | {field.name: [value]}


def ask(desk: Desk, api_key: ApiKey, version: int, message: Message, client_id: str = "test") -> None:
    """Raises what is wrong with the broker."""
    frame = encode_request(api_key, version, 1, client_id, encode(f"{api_key.schema_prefix}Request", version, message))
    with desk.alarms.turn():
        try:
            header, answer = desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS, peer=desk.peer)
        except MalformedMessage:
            return
        answer = made(desk.dispatcher, header, answer)
        if isinstance(answer, Pending):
            answer.on_complete = lambda late: desk.dispatcher.frame(header, late) and None
        elif isinstance(answer, dict | list):
            desk.dispatcher.frame(header, answer)
    desk.threads.run_all()


VERSIONS = [
    (api_key, version)
    for api_key, served in SUPPORTED.items()
    for version in range(
        max(served.lowest, load_schema(f"{api_key.schema_prefix}Request").valid.lowest), served.highest + 1
    )
]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS, ids=lambda value: getattr(value, "name", f"v{value}"))
def test_no_field_is_a_bug(desk: Desk, api_key: ApiKey, version: int, caplog: pytest.LogCaptureFixture) -> None:
    fields = load_schema(f"{api_key.schema_prefix}Request").fields
    requests = [("test", message) for message in variations(fields, version)]
    requests += [(client_id, plain(fields, version)) for client_id in TEXTS]
    for client_id, message in requests:
        caplog.clear()
        ask(desk, api_key, version, message, client_id)
        bugs = [record.getMessage() for record in caplog.records if "bug" in record.getMessage()]
        assert not bugs, (message, bugs)
    desk.alarms.pass_time(DAY_MS)
    assert not [record for record in caplog.records if "bug" in record.getMessage()]
