"""What a load sends, and what it writes down of the answers; with a producer that is a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from oncelog.audit.ids import RecordId, parse_id
from oncelog.audit.numbered_load import NumberedLoad
from oncelog.client.records import RecordMetadata
from oncelog.client.table_result import PartitionOffsets, TableMetadata
from oncelog.types import NO_OFFSET


class Sent:
    """Takes what `Producer` takes, and keeps it."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.on_delivery: list[Callable[[Any, Exception | None], None]] = []

    def partitions_for(self, topic: str) -> int:
        return 2

    def send(self, topic: str, value: bytes, *, partition: int, on_delivery: Callable[..., None]) -> None:
        self.records.append((partition, value))
        self.on_delivery.append(on_delivery)

    def send_table(self, topic: str, table: pa.Table, *, on_delivery: Callable[..., None]) -> None:
        self.records += zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)
        self.on_delivery.append(on_delivery)

    @property
    def ids(self) -> list[tuple[int, RecordId | None]]:
        return [(partition, parse_id(value)) for partition, value in self.records]


@pytest.fixture
def sent() -> Sent:
    return Sent()


def load_of(sent: Sent, **options: Any) -> NumberedLoad:
    return NumberedLoad(sent, "t", **options)  # type: ignore[arg-type]


def in_turn(count: int) -> list[tuple[int, RecordId]]:
    return [(number % 2, RecordId(f"load/t-{number % 2}", number // 2)) for number in range(count)]


def test_partitions_take_turns_and_number_for_themselves_whichever_way_records_are_sent(sent: Sent) -> None:
    load = load_of(sent)
    load.send(3)
    load.send_table(4)
    load.send(2)
    assert sent.ids == in_turn(9)
    assert load.sent == load.ledger.sent_count == 9


def test_records_are_filled_up_to_their_size(sent: Sent) -> None:
    load_of(sent, record_bytes=50).send(1)
    (record,) = sent.records
    assert len(record[1]) == 50


def test_what_is_confirmed_is_written_down_with_its_offset(sent: Sent) -> None:
    load = load_of(sent)
    load.send(2)
    sent.on_delivery[0](RecordMetadata("t", 0, 17, 0), None)
    sent.on_delivery[1](RecordMetadata("t", 1, NO_OFFSET, 0), None)
    assert load.acknowledged == load.ledger.acknowledged_count == 2
    assert load.ledger.streams["load/t-0"].offsets == {0: 17}
    assert load.ledger.streams["load/t-1"].offsets == {}


def test_rows_that_are_confirmed_are_found_again_in_the_runs_of_their_offsets(sent: Sent) -> None:
    load = load_of(sent)
    load.send(2)
    load.send_table(6)
    parts = (PartitionOffsets(0, 3, ((5, 6), (9, 9))), PartitionOffsets(1, 3, ()))
    sent.on_delivery[-1](TableMetadata("t", 6, parts), None)
    assert load.acknowledged == 6
    assert load.ledger.streams["load/t-0"].offsets == {1: 5, 2: 6, 3: 9}
    assert load.ledger.streams["load/t-1"].offsets == {}


def test_failures_are_kept_and_confirm_nothing(sent: Sent) -> None:
    load = load_of(sent)
    load.send(1)
    load.send_table(2)
    for on_delivery in sent.on_delivery:
        on_delivery(None, TimeoutError("too late"))
    assert load.failures == ["t-0 number 0: too late", "a table: too late"]
    assert load.acknowledged == load.ledger.acknowledged_count == 0
