"""What a runner has in hand while partitions come and go: nothing that was read is passed over."""

from __future__ import annotations

from oncelog.once.hand import Hand
from oncelog.types import TopicPartition
from tests.once.shop import PARTITION, Order, orders

OTHER = TopicPartition("orders", 1)


def test_what_was_read_since_a_partition_came_back_stays_when_another_goes() -> None:
    hand = Hand()
    hand.take([*orders(2), Order(0, partition=1)])
    hand.drop([PARTITION])
    hand.spare += orders(3)  # it is ours again, and read anew
    hand.drop([OTHER])
    assert hand.spare == orders(3)
    assert hand.unsettled() == {PARTITION: 0}


def test_how_far_a_partition_was_is_forgotten_when_it_goes() -> None:
    hand = Hand()
    hand.take(orders(5))
    hand.settle(orders(5))
    hand.drop([PARTITION])
    hand.spare += orders(5)
    assert hand.unsettled() == {PARTITION: 0}
    assert hand.uncommitted.hand_over() == {}


def test_a_record_is_settled_when_its_partition_has_got_beyond_it() -> None:
    hand = Hand()
    first, second = orders(2)
    hand.take([first, second])
    assert not hand.is_settled(first)
    hand.settle([first])
    assert hand.is_settled(first)
    assert not hand.is_settled(second)
    hand.drop([PARTITION])
    assert not hand.is_settled(first)
