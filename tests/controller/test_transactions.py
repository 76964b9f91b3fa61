from __future__ import annotations

import pytest

from oncelog.controller.records import MetadataRecord, RecordType, UnreadableMetadata
from oncelog.controller.transactions import TransactionBuffer

BEGIN = MetadataRecord(RecordType.BEGIN_TRANSACTION, {"name": None})
END = MetadataRecord(RecordType.END_TRANSACTION, {})
ABORT = MetadataRecord(RecordType.ABORT_TRANSACTION, {"reason": None})


def feature(level: int) -> MetadataRecord:
    return MetadataRecord(RecordType.FEATURE_LEVEL, {"name": "f", "feature_level": level})


def in_force(*records: MetadataRecord) -> tuple[list[int], bool]:
    buffer = TransactionBuffer()
    levels = [let_go.body["feature_level"] for record in records for let_go in buffer.feed(record)]
    return levels, buffer.is_open


def test_records_outside_transactions_are_in_force_at_once() -> None:
    assert in_force(feature(1), feature(2)) == ([1, 2], False)


def test_a_transaction_takes_effect_where_it_ends() -> None:
    assert in_force(feature(1), BEGIN, feature(2), feature(3)) == ([1], True)
    assert in_force(feature(1), BEGIN, feature(2), feature(3), END, feature(4)) == ([1, 2, 3, 4], False)
    assert in_force(BEGIN, END, BEGIN, feature(1), END) == ([1], False)


def test_an_aborted_transaction_never_does() -> None:
    assert in_force(BEGIN, feature(1), ABORT, feature(2)) == ([2], False)
    assert in_force(BEGIN, feature(1), ABORT, BEGIN, feature(2), END) == ([2], False)


@pytest.mark.parametrize("records", [(BEGIN, BEGIN), (END,), (ABORT,), (BEGIN, END, END), (BEGIN, ABORT, END)])
def test_what_makes_no_sense_is_refused(records: tuple[MetadataRecord, ...]) -> None:
    with pytest.raises(UnreadableMetadata):
        in_force(*records)
