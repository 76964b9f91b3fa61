"""`Uncommitted`: whoever reached a position answers for it until a commit has succeeded."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.client.uncommitted import Uncommitted
from oncelog.types import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
partitions = st.sampled_from([ONE, TWO])


def test_a_partition_that_is_not_owned_any_more_is_forgotten() -> None:
    uncommitted: Uncommitted[int] = Uncommitted()
    uncommitted.reached(ONE, 5)
    uncommitted.reached(TWO, 7)
    assert uncommitted.hand_over([TWO]) == {TWO: 7}
    assert not uncommitted.is_any_waiting


class Commits(RuleBasedStateMachine):
    """Positions only grow; the group writes commits in the order in which they were handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.uncommitted: Uncommitted[int] = Uncommitted()
        self.reached_so_far: dict[TopicPartition, int] = {}
        self.group: dict[TopicPartition, int] = {}
        self.under_way: list[dict[TopicPartition, int]] = []

    @rule(partition=partitions, records=st.integers(1, 1000))
    def reach(self, partition: TopicPartition, records: int) -> None:
        self.reached_so_far[partition] = self.reached_so_far.get(partition, 0) + records
        self.uncommitted.reached(partition, self.reached_so_far[partition])

    @rule(again=st.booleans())
    def begin(self, again: bool) -> None:
        hand_over = self.uncommitted.hand_over_again if again else self.uncommitted.hand_over
        if commit := hand_over():
            self.under_way.append(commit)  # type: ignore[arg-type]

    @precondition(lambda self: self.under_way)
    @rule(goes_well=st.booleans())
    def end(self, goes_well: bool) -> None:
        commit = self.under_way.pop(0)
        if goes_well:
            for partition, position in commit.items():
                assert self.group.get(partition, 0) <= position, "an older position over a newer one"
                self.group[partition] = position
            self.uncommitted.committed(commit)
        else:
            self.uncommitted.failed(commit)

    @rule()
    def commit_by_hand(self) -> None:
        """All that was reached; those under way end before it does."""
        before = self.uncommitted.snapshot([ONE, TWO])
        while self.under_way:
            self.end(goes_well=False)
        self.group.update(self.reached_so_far)
        self.uncommitted.covered(before)

    @invariant()
    def nobody_has_to_be_asked_twice(self) -> None:
        """Whatever the group has not got is either waiting, or with a commit that has no answer."""
        known = self.uncommitted.snapshot([ONE, TWO])
        for partition, position in self.reached_so_far.items():
            assert self.group.get(partition, 0) == position or known.get(partition) == position

    def teardown(self) -> None:
        while self.under_way:
            self.end(goes_well=False)
        left = self.uncommitted.hand_over()
        assert {**self.group, **left} == self.reached_so_far


TestCommits = Commits.TestCase
