"""What `assert_clean` makes of an audit. test_plugin.py and test_page.py show that it reads topics."""

from __future__ import annotations

import pytest

from oncelog.audit.account import Audit
from oncelog.audit.ids import RecordId
from oncelog.testing.audits import AuditedTopic
from oncelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


def audited(*numbers: int | None) -> AuditedTopic:
    audit = Audit()
    audit.open_partition(ORDERS)
    for offset, number in enumerate(numbers):
        audit.observe(ORDERS, offset, None if number is None else RecordId("shop", number))
    return AuditedTopic("orders", audit.report())


def test_clean() -> None:
    audited(0, 1, 2).assert_clean()
    audited(0, None, 1).assert_clean(stored=2)
    audited().assert_clean(stored=0)


@pytest.mark.parametrize(
    ("numbers", "stored", "complaint"),
    [
        (
            (0, 2),
            None,
            "orders: lost 1, duplicated 0, out of order 0 (sent 3, stored 2)\n  orders-0: shop/1 is miss",
        ),
        (
            (0, 1, 1),
            None,
            "lost 0, duplicated 1, out of order 0 (sent 2, stored 3)\n  orders-0: shop/1 is stored",
        ),
        ((0, 2, 1), None, "lost 0, duplicated 0, out of order 1 (sent 3, stored 3)\n  orders-0: shop/1 at offset 2"),
        ((0, 1), 3, "orders: 2 records with an id instead of 3"),
        ((0, 1), 0, "orders: 2 records with an id instead of 0"),
        ((), None, "orders: the topic is empty, so there is nothing to audit"),
        ((None, None), None, "orders: no record carries an id: number the records per producer"),
    ],
)
def test_not_clean(numbers: tuple[int | None, ...], stored: int | None, complaint: str) -> None:
    with pytest.raises(AssertionError) as raised:
        audited(*numbers).assert_clean(stored)
    assert complaint in str(raised.value)
