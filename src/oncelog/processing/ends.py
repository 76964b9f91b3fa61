"""When `until_end` is reached: all workers of a call have read their partitions up to where they ended.

A partition's end is looked up once, when its reader first finds nothing more to read. A worker that is ready stays in
the group until all are: partitions may still come to it. One that is on its way from one worker to another is nobody's
for a moment, and waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog.types import TopicPartition


class Ends:
    """Shared by the workers of a call; each operation is one step, so that threads need no lock."""

    def __init__(self, workers: int) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._unread: dict[TopicPartition, int | None] = {}
        """Partitions that were read, but not up to their end, and whose they are: None's at the moment."""
        self._ready: list[bool | None] = [False] * workers
        """None for a worker without partitions: it keeps nobody from ending."""
        self._read: set[TopicPartition] = set()
        """Up to their end."""
        self._were_reached = False

    def gave_up(self, worker: int, partitions: Iterable[TopicPartition]) -> None:
        self._ready[worker] = False
        self._owned_by(None, partitions)

    def taken(self, worker: int, partitions: Iterable[TopicPartition]) -> None:
        self._ready[worker] = False
        self._owned_by(worker, partitions)

    def _owned_by(self, worker: int | None, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._read:
                self._unread[partition] = worker

    def found(self, worker: int, positions: Mapping[TopicPartition, int]) -> None:
        """The worker found nothing more to read, and is here."""
        at_end = [place for place, position in positions.items() if position >= self.known.get(place, position + 1)]
        for partition in at_end:
            self._has_read(partition)
        self._ready[worker] = len(at_end) == len(positions) if positions else None

    def done_elsewhere(self, committed: Mapping[TopicPartition, int]) -> None:
        """What members of the group that are not ours have committed."""
        for partition, offset in committed.items():
            if self._unread.get(partition, 0) is None and offset >= self.known.get(partition, offset + 1):
                self._has_read(partition)

    def nothing_to_read(self) -> None:
        """There is no topic, and so no end of one."""
        self._were_reached = True

    def _has_read(self, partition: TopicPartition) -> None:
        self._read.add(partition)
        self._unread.pop(partition, None)

    def orphans(self) -> list[TopicPartition]:
        """Partitions that ours gave up, and that are not known to be read."""
        return [partition for partition, owner in list(self._unread.items()) if owner is None]

    @property
    def are_reached(self) -> bool:
        """Once they are, they stay so: whoever hears it first leaves the group, and its partitions move again."""
        if not self._were_reached:
            self._were_reached = any(self._ready) and False not in self._ready and not self._unread
        return self._were_reached
