"""Who answers for positions that the group is to have: whoever reached them, until a commit of theirs has succeeded.

A commit takes them over with `hand_over` and says how it ended. After a failure they wait for the next commit, unless
there is something newer by then: what was reached, handed over or forgotten since. So an older commit that fails never
brings an older position back. Pure; belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

from oncelog.types import TopicPartition

P = TypeVar("P")


class Uncommitted(Generic[P]):
    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, P] = {}
        """For a commit to begin."""
        self._under_way: dict[TopicPartition, Mapping[TopicPartition, P]] = {}
        """With which commit the newest position of a partition went out that may still have to come back."""

    @property
    def is_any_waiting(self) -> bool:
        """There is something for a commit that is not under way with another."""
        return bool(self._waiting)

    def reached(self, partition: TopicPartition, position: P) -> None:
        self._waiting[partition] = position

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._waiting.pop(partition, None)
            self._under_way.pop(partition, None)

    def forget_all(self) -> None:
        self._waiting.clear()
        self._under_way.clear()

    # --- a commit of them -------------------------------------------------------------------------------------------

    def hand_over(self, owned: Collection[TopicPartition] | None = None) -> Mapping[TopicPartition, P]:
        """What waits, to a commit that begins now; its caller calls `committed` or `failed` with the very mapping.
        Forgets what is not among the `owned`."""
        waiting, self._waiting = self._waiting, {}
        return self._sent(waiting, owned)

    def hand_over_again(self, owned: Collection[TopicPartition] | None = None) -> Mapping[TopicPartition, P]:
        """The same, with all that is under way: for a commit after which there may be no other."""
        under_way = {partition: commit[partition] for partition, commit in self._under_way.items()}
        waiting, self._waiting = self._waiting, {}
        self._under_way.clear()
        return self._sent({**under_way, **waiting}, owned)

    def _sent(
        self, offsets: Mapping[TopicPartition, P], owned: Collection[TopicPartition] | None
    ) -> Mapping[TopicPartition, P]:
        commit = {each: position for each, position in offsets.items() if owned is None or each in owned}
        self._under_way.update(dict.fromkeys(commit, commit))
        return commit

    def committed(self, commit: Mapping[TopicPartition, P]) -> None:
        for partition in commit:
            if self._under_way.get(partition) is commit:
                del self._under_way[partition]

    def failed(self, commit: Mapping[TopicPartition, P]) -> None:
        """Some of it may have been written: the rest cannot be told apart, and writing it twice does no harm."""
        for partition, position in commit.items():
            if self._under_way.get(partition) is commit:
                del self._under_way[partition]
                self._waiting.setdefault(partition, position)

    # --- a commit of somebody else's --------------------------------------------------------------------------------

    def snapshot(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, P]:
        """What is not committed of these, for `covered` to compare with when another commit has ended."""
        found: dict[TopicPartition, P] = {}
        for partition in partitions:
            if partition in self._waiting:
                found[partition] = self._waiting[partition]
            elif partition in self._under_way:
                found[partition] = self._under_way[partition][partition]
        return found

    def covered(self, before: Mapping[TopicPartition, P]) -> None:
        """Another commit wrote as much as this, or more, after it was reached: nobody has to write it any more. What
        was reached since the snapshot stays."""
        for partition, position in before.items():
            if self._waiting.get(partition) is position:
                del self._waiting[partition]
            commit = self._under_way.get(partition)
            if commit is not None and commit[partition] is position:
                del self._under_way[partition]
