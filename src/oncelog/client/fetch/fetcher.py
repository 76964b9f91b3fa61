"""The consumer's fetcher: what to read from whom, without I/O.

The core above calls `poll` when something may be due and `handle` for each event of the network. Its shell reads the
`Inbox`, in a thread of its own if it likes; what the two must keep to is said there. To each broker one Fetch is out at
any time, and the next follows as soon as it is answered, while the reader is busy with what came.

Bounds: at most MAX_WAITING answers of a partition wait, and a request never asks for more than the inbox has room for.
Only a batch that is larger than that by itself comes all the same: without it nobody could read on (KIP-74).

This module only puts the parts together: `Positions` (where to read), `Lookups` (offsets of resets and questions),
`Validation` (is the log still the same?), `Exchange` (the fetching itself), `Complaints` (what the user must hear).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.driven import MAX_POLL_MS
from oncelog.client.fetch.complaints import Complaints
from oncelog.client.fetch.counters import FetchCounters
from oncelog.client.fetch.exchange import Exchange, FetchTag
from oncelog.client.fetch.inbox import FetchedData, Inbox
from oncelog.client.fetch.leaders import Leaders
from oncelog.client.fetch.lookups import NEVER_MS, Listed, ListTag, Lookups, Survey
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.fetch.positions import Positions
from oncelog.client.fetch.settings import Backoff, FetchSettings
from oncelog.client.fetch.validation import EpochTag, Validation
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Event
from oncelog.errors import KafkaError
from oncelog.types import NO_LEADER_EPOCH, TopicPartition


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
        self.counters = FetchCounters()
        self._inbox = inbox
        self._complaints = Complaints(inbox)
        settings = FetchSettings.of(config)
        backoff = Backoff(settings, jitter)
        leaders = Leaders(network, metadata, self.states)
        self._lookups = Lookups(settings, network, metadata, leaders, backoff)
        self._positions = Positions(
            settings, self.states, metadata, leaders, self._lookups, self._complaints, backoff, wall_ms
        )
        self._validation = Validation(
            network,
            metadata,
            leaders,
            backoff,
            trusted=self._positions.trust,
            truncated=self._positions.leave,
            refused=self._refused,
        )
        self._exchange = Exchange(
            settings, network, metadata, inbox, self._positions, leaders, self._complaints, backoff, self.counters
        )

    # --- what to read -----------------------------------------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these, and no others. Those that stay keep their state."""
        self._positions.assign(partitions)

    def unpositioned(self) -> list[PartitionState]:
        """Those that wait for `seek` or `reset`: the group may have a committed offset."""
        return self._positions.unpositioned()

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Read on from there; with the epoch of the record before it a log that was truncated is noticed. Does nothing
        for a partition that is not (or no longer) assigned, as `reset` and the others."""
        state = self.states.get(partition)
        if state is not None:
            self._positions.seek(state, offset, leader_epoch)

    def held(self) -> dict[PartitionState, list[FetchedData]]:
        """What was fetched and not read to its end, in order, by partition. For any thread."""
        return self._inbox.held()

    def reset(self, partition: TopicPartition, spec: int | None = None) -> None:
        """To EARLIEST, LATEST, the first record at or after a timestamp; by `auto.offset.reset` if nothing is said."""
        state = self.states.get(partition)
        if state is not None:
            self._positions.reset(state, spec)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self.states:
                self._positions.pause(self.states[partition])

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self.states:
                self._positions.resume(self.states[partition])

    def fetch_again(self, partition: TopicPartition, seek_count: int) -> None:
        """What waits of the partition is spoiled: get it anew, from the reader's position on. Unless the reader has
        jumped since (`seek_count`)."""
        state = self.states.get(partition)
        if state is not None and state.seek_count == seek_count and state.position is not None:
            self._positions.fetch_again(state)

    def list_offsets(self, specs: Mapping[TopicPartition, int], done: Callable[[Listed | Exception], None]) -> Survey:
        """The offset of EARLIEST, LATEST or a timestamp for each partition, assigned or not. Asks until it knows, or
        until the survey is cancelled: the caller keeps the time."""
        return Survey(self._lookups, specs, done)

    def why_unanswered(self, partitions: Collection[TopicPartition]) -> str | None:
        """What is known of partitions of which nobody tells an offset; None if nothing. For any thread."""
        return self._lookups.why_unanswered(partitions)

    def take_errors(self) -> list[Exception]:
        """What the user must hear, each once."""
        return self._complaints.take()

    # --- what a core calls ------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> int:
        """Sends what is due. Returns the milliseconds until it wants to be polled again, if nothing happens before."""
        positions = self._positions
        positions.learn_leaders()
        wake_ms = NEVER_MS
        if positions.unsettled:
            self._inbox.is_awaited = True  # before we look how far the reader is
            wake_ms = positions.poll(now_ms)
            wake_ms = min(wake_ms, self._validation.poll(positions.unsettled, now_ms))
        wake_ms = min(wake_ms, self._lookups.poll(now_ms))
        wake_ms = min(wake_ms, self._exchange.poll(now_ms))
        return max(0, min(wake_ms - now_ms, MAX_POLL_MS))

    def handle(self, event: Event, now_ms: int) -> bool:
        """Whether the event was one of the fetcher's requests."""
        tag = event.tag
        if isinstance(tag, FetchTag):
            self._exchange.handle(tag, event, now_ms)
        elif isinstance(tag, ListTag):
            self._lookups.handle(tag, event, now_ms)
        elif isinstance(tag, EpochTag):
            self._validation.handle(tag, event, now_ms)
        else:
            return False
        return True

    def _refused(self, state: PartitionState, error: KafkaError) -> None:
        self._complaints.add_once(str(state.partition), error)
