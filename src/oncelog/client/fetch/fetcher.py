"""What to fetch from whom: positions, resets, checks of the log, and bounded prefetching. Without I/O.

The core above calls `poll` when something may be due and `handle` for each event of the network. Its shell reads the
`Inbox` in a thread of its own, and moves `position` of the states. The rules between the two:

- The reader begins at `state.position`, whatever the data begins with, and moves it before it takes the next data.
- Data whose `seek_count` is not its state's is thrown away (`Inbox.take` does so), also in the middle of reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_records import OffsetAndTimestamp
from oncelog.client.fetch.inbox import Inbox
from oncelog.client.fetch.partitions import PartitionState, Stage
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Event, Network
from oncelog.types import NO_LEADER_EPOCH, TopicPartition

Listed = dict[TopicPartition, OffsetAndTimestamp | None]
"""None where no record is as young as the time that was asked for."""


class Question(Protocol):
    """A question for offsets that is not answered yet."""

    def cancel(self) -> None:
        """Nobody waits for it any more."""


class Fetcher:
    def __init__(
        self,
        config: ConsumerConfig,
        network: Network,
        metadata: MetadataCache,
        inbox: Inbox,
        *,
        jitter: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        """`wall_ms` is the time of day, which `auto.offset.reset=by_duration:...` counts from."""
        self.states: dict[TopicPartition, PartitionState] = {}
        self._errors: list[Exception] = []

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these, and no others. Those that stay keep their state."""
        raise NotImplementedError

    def unpositioned(self) -> list[PartitionState]:
        """Those that wait for `seek` or `reset`: the group may have a committed offset."""
        return [state for state in self.states.values() if state.stage is Stage.UNPOSITIONED]

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        raise NotImplementedError

    def reset(self, partition: TopicPartition, spec: int | None = None) -> None:
        """To EARLIEST, LATEST, the first record at or after a timestamp; by `auto.offset.reset` if nothing is said."""
        raise NotImplementedError

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        raise NotImplementedError

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        raise NotImplementedError

    def list_offsets(self, specs: Mapping[TopicPartition, int], done: Callable[[Listed | Exception], None]) -> Question:
        """The offset of EARLIEST, LATEST or a timestamp for each partition, assigned or not. Asks until it knows, or
        until the question is cancelled: the caller keeps the time."""
        raise NotImplementedError

    def take_errors(self) -> list[Exception]:
        """What the user must hear, each once."""
        errors, self._errors = self._errors, []
        return errors

    def poll(self, now_ms: int) -> int:
        """Sends what is due. Returns the milliseconds until it wants to be polled again, if nothing happens before."""
        raise NotImplementedError

    def handle(self, event: Event, now_ms: int) -> bool:
        """Whether the event was one of the fetcher's requests."""
        raise NotImplementedError
