"""Every error that Kafka has means something for a transaction."""

from __future__ import annotations

import pytest

from oncelog.client.producer_errors import DeliveryFailed
from oncelog.client.transaction.verdict import TransactionVerdict, is_fatal_for_records, verdict_of
from oncelog.errors import ERRORS_BY_CODE, InvalidProducerEpoch, ProducerFenced

ASKED_AGAIN = (TransactionVerdict.RETRY, TransactionVerdict.CONTENDED, TransactionVerdict.MOVED)


@pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE))
def test_what_can_be_tried_again_is(code: int) -> None:
    if ERRORS_BY_CODE[code].retriable:
        assert verdict_of(code) in ASKED_AGAIN


def test_a_busy_coordinator_is_asked_again_soon() -> None:
    assert verdict_of(51) is TransactionVerdict.CONTENDED


def test_what_nobody_knows_is_fatal() -> None:
    assert verdict_of(9_999) is TransactionVerdict.FATAL


def test_a_leader_that_says_fenced_ends_the_producer_even_if_the_record_may_be_stored() -> None:
    honest = DeliveryFailed("perhaps stored", may_be_written=True)
    honest.__cause__ = ProducerFenced()
    assert is_fatal_for_records(ProducerFenced())
    assert is_fatal_for_records(honest)
    assert not is_fatal_for_records(InvalidProducerEpoch())
    assert not is_fatal_for_records(DeliveryFailed("not stored", may_be_written=False))
