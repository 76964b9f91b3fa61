from __future__ import annotations

import pytest

from oncelog.spark.sink.identity import WHOLE_BATCH, driver_id, holds_output, salvage_id, slot_id


@pytest.mark.parametrize("prefix", ["billing", "billing-2", "a-salvage", "a-driver", "a-batch", ""])
def test_a_prefix_knows_its_own_and_no_others(prefix: str) -> None:
    others = ["billing", "billing-2", "a", "a-salvage", "a-driver", "a-batch", ""]
    for slot in (0, 17, WHOLE_BATCH):
        for name in (slot_id(prefix, slot), salvage_id(prefix, slot)):
            assert [other for other in others if holds_output(other, name)] == [prefix]


def test_the_driver_is_no_slot() -> None:
    assert not holds_output("billing", driver_id("billing"))
    assert not holds_output("billing", "billing")
    assert not holds_output("billing", "billing-x")
