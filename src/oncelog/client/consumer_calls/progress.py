"""How far the user has come: what is in its hands, and what it is done with.

When is a record done with? When the user asks for more. `poll()` is done with all that earlier polls returned,
iteration with every record before the one in hand; `close()` with everything, unless an error ended the `with` block.

Owns both; never waits, and commits nothing: it hands over what may be committed, and answers for it again if that was
in vain.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.client.consumer_core import ConsumerCore, Offsets
from oncelog.client.consumer_reader import Reader
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.uncommitted import Uncommitted
from oncelog.types import TopicPartition


class Progress:
    def __init__(self, core: ConsumerCore, reader: Reader) -> None:
        self.is_interrupted = False
        """While iterating: the rest of the chunk is not to be handed out."""
        self._core = core
        self._reader = reader
        self._chunk: PartitionState | None = None
        """Where the records are from that iteration hands out."""
        self._done: Uncommitted[OffsetAndMetadata] = Uncommitted()
        """What the user has finished with, and is not known to be committed."""

    # --- in hand ----------------------------------------------------------------------------------------------------

    def chunk_began(self, partition: TopicPartition) -> None:
        """Iteration has records of this partition to hand out."""
        self._chunk = self._core.fetcher.states.get(partition)
        self.is_interrupted = False

    def chunk_ended(self) -> None:
        """Iteration handed out the whole chunk, and the user came back for more."""
        self._chunk = self._core.in_hand = None

    def interrupt(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """What iteration holds of these partitions, beyond the record in hand, is not handed out from here."""
        state = self._chunk
        if state is None or self.is_interrupted or (partitions is not None and state.partition not in set(partitions)):
            return
        if self._core.in_hand is not None:
            self._reader.give_back(self._core.in_hand.offset + 1)
        self.is_interrupted = True

    def position_of(self, state: PartitionState) -> int | None:
        """After the last record that the user has seen."""
        record = self._core.in_hand
        if self._chunk is state and record is not None and not self.is_interrupted:
            return record.offset + 1
        return state.position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of all partitions where one is known."""
        found = {}
        for state in list(self._core.fetcher.states.values()):
            position = self.position_of(state)
            if position is not None:
                found[state.partition] = OffsetAndMetadata(position, "", state.position_epoch)
        return found

    # --- done with --------------------------------------------------------------------------------------------------

    def finish_all(self) -> None:
        """The user asks for more: everything handed out is done with."""
        self.interrupt()
        self.chunk_ended()
        for state in self._reader.touched:
            if state.position is not None:
                self._done.reached(state.partition, OffsetAndMetadata(state.position, "", state.position_epoch))
        self._reader.touched.clear()

    def finish_before_hand(self) -> None:
        """An error ended the user's work: the record in hand is not done with, nor is what the last poll returned."""
        state, record = self._chunk, self._core.in_hand
        if state is not None and record is not None:
            self._done.reached(state.partition, OffsetAndMetadata(record.offset, "", state.position_epoch))
        self.chunk_ended()

    def jumped(self, partitions: Iterable[TopicPartition]) -> None:
        """Where the user was before is not to be committed any more; where it goes to is."""
        self.forget(partitions)
        for partition in partitions:
            state = self._core.fetcher.states.get(partition)
            if state is not None:
                self._reader.touched.add(state)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        self._done.forget(partitions)

    def forget_all(self) -> None:
        self._done.forget_all()

    # --- commits of it ----------------------------------------------------------------------------------------------

    @property
    def has_done(self) -> bool:
        """Something is done with that no commit is under way for."""
        return self._done.is_any_waiting

    def hand_over_done(self) -> Offsets:
        """What is done with of the partitions that are still ours, to a commit that begins now. Whoever asks calls
        `done_committed` or `done_not_committed` with the very mapping."""
        return self._done.hand_over(self._core.assignment)

    def hand_over_all_done(self) -> Offsets:
        """The same, and what other commits have that have not ended: for the last commit that there may be."""
        return self._done.hand_over_again(self._core.assignment)

    def done_committed(self, commit: Offsets) -> None:
        self._done.committed(commit)

    def done_not_committed(self, commit: Offsets) -> None:
        """It is done with still, and has to be committed unless there is something newer."""
        self._done.failed(commit)

    def covered_by(self, wanted: Offsets) -> Offsets:
        """What is done with by now, and need not be committed any more when the user's own commit has succeeded."""
        before = self._done.snapshot(wanted)
        return {each: position for each, position in before.items() if position.offset <= wanted[each].offset}

    def done_covered(self, covered: Offsets) -> None:
        self._done.covered(covered)
