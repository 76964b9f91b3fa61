"""Writing a history down while it happens. Opens no file and reads no clock: both are given.

`write` must have handed a line to the operating system when it returns (`os.write` does); then a killed process loses
at most the line that it was writing, and has not yet acted on it. `clock` must be one that all processes share and that
never goes back (`time.monotonic_ns`).

Say what is about to happen before it does (`sends`, `is_committing`), and what was answered afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from oncelog.audit.history.codec import encode_line, plain_group_offsets, plain_polls, plain_sends
from oncelog.audit.history.model import GroupOffset, Outcome, Records
from oncelog.types import TopicPartition


class Recorder:
    def __init__(self, process: str, write: Callable[[bytes], object], clock: Callable[[], int]) -> None:
        self._write = write
        self._clock = clock
        self._fields: dict[str, object] = {}
        write(encode_line({"process": process}))

    def begin(self, *, is_transaction: bool = False, reads_committed: bool = True) -> None:
        """An operation begins now. It is written with the first thing that is to be said about it."""
        self._fields = {"begin": self._clock()}
        if is_transaction:
            self._fields["transaction"] = True
        if not reads_committed:
            self._fields["reads_committed"] = False

    def note(
        self,
        *,
        moved: Iterable[TopicPartition] = (),
        polls: Iterable[Records] = (),
        sends: Iterable[Records] = (),
        acks: Iterable[Sequence[int]] = (),
        offset_commits: Iterable[GroupOffset] = (),
        offset_reads: Iterable[GroupOffset] = (),
        drained: Iterable[TopicPartition] = (),
        is_committing: bool = False,
    ) -> None:
        """`acks`: the offsets of each entry of the `sends` that were noted so far and have none yet, in order."""
        lists = {
            "moved": [list(one) for one in moved],
            "polls": plain_polls(polls),
            "sends": plain_sends(sends),
            "acks": [list(one) for one in acks],
            "offset_commits": plain_group_offsets(offset_commits),
            "offset_reads": plain_group_offsets(offset_reads),
            "drained": [list(one) for one in drained],
        }
        self._fields.update({name: plain for name, plain in lists.items() if plain})
        if is_committing:
            self._fields["commit"] = True
        self._write(encode_line(self._fields))
        self._fields = {}

    def end(self, outcome: Outcome) -> None:
        self._fields.update(end=self._clock(), outcome=outcome.value)
        self._write(encode_line(self._fields))
        self._fields = {}
