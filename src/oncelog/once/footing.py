"""Where a runner stands in its group: which partitions it owns, from where it reads them, what the broker is told.

Callbacks of the consumer only take notes: what needs the database happens outside of `poll()`, where it can be tried
again.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection
from typing import Any

from oncelog.client.arguments import shown
from oncelog.errors import OncelogError
from oncelog.once.errors import OnceError, PartitionFenced, PartitionTakenTwice, PositionBeyondEnd
from oncelog.once.hand import Hand
from oncelog.once.strategy import NO_GENERATION, Guard
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

OTHER_CLIENTS = ("aiokafka", "cimpl", "confluent_kafka", "kafka")


CALLS = (
    "assignment", "commit", "commit_async", "pause", "paused", "poll", "resume", "seek", "subscribe", "subscription",
)  # fmt: skip
"""What a runner needs a consumer to have."""


def check_consumer(consumer: object) -> None:
    """That it is one of ours, or does what ours does. Raises TypeError."""
    wanted = "once.Runner takes an oncelog.Consumer"
    if inspect.iscoroutinefunction(getattr(consumer, "poll", None)):
        raise TypeError(f"{wanted}, not {shown(consumer)}: effects are made by one thread; there is none for asyncio")
    if type(consumer).__module__.partition(".")[0] in OTHER_CLIENTS or not all(
        callable(getattr(consumer, name, None)) for name in CALLS
    ):
        raise TypeError(
            f'{wanted}, not {shown(consumer)}: make it with oncelog.Consumer("HOST:PORT", group_id=...,'
            " enable_auto_commit=False)"
        )


class Footing:
    def __init__(self, consumer: Any, guard: Guard, hand: Hand, topics: Any) -> None:
        config = getattr(consumer, "config", None)
        if getattr(config, "enable_auto_commit", False):
            raise OnceError(
                "the consumer commits offsets by itself, perhaps before their effects are done: make it with "
                "enable_auto_commit=False"
            )
        self._consumer = consumer
        self._guard = guard
        self._hand = hand
        self._topics = topics
        self.group_id: str | None = getattr(config, "group_id", None)
        self.assignments = 0
        """How often partitions were assigned."""
        self.unclaimed: set[TopicPartition] = set()
        """Ours, but the database has not been asked yet where to go on; paused until then."""
        self._held: set[TopicPartition] = set()
        """Paused by us. What the user paused is the user's to resume."""
        self._given_up: set[TopicPartition] = set()
        """The database says that they are another's, and the group has yet to notice; paused until it does."""

    # --- the group -------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Join the group, or make do with what the consumer was assigned by hand."""
        topics = self._topics or self._consumer.subscription()
        if topics:
            self._consumer.subscribe(
                topics, on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost
            )
        elif not self._consumer.assignment():
            raise OnceError("there is nothing to read: give the runner `topics`, or subscribe() or assign() before")
        if self._consumer.assignment():
            self._on_assigned(self._consumer, self._consumer.assignment())

    def _on_assigned(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        self.assignments += 1
        self._given_up.difference_update(partitions)
        if self._guard.keeps_positions and partitions:
            self.unclaimed.update(partitions)
            self._hand.drop(partitions)
            self._hold(partitions)

    def _on_revoked(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        self.commit(None)
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        self._hand.drop(partitions)
        self.unclaimed.difference_update(partitions)
        self._given_up.difference_update(partitions)
        self._held.difference_update(partitions)
        self._guard.give_up(partitions)

    @property
    def generation(self) -> int:
        return NO_GENERATION if self.group_id is None else int(self._consumer.group_metadata().generation_id)

    @property
    def is_placed(self) -> bool:
        """It is known what is ours. Nobody calls `on_assigned` to say that it is nothing, but we are a member then."""
        return self.assignments > 0 or self.generation != NO_GENERATION

    # --- positions in the database
    # -------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Go on where the database says, in all partitions that are new here."""
        partitions = sorted(self.unclaimed)
        positions = self._guard.claim(partitions, self.generation)
        ends = self._consumer.end_offsets(*positions) if positions else {}
        for partition, offset in positions.items():
            if offset > ends[partition]:
                raise PositionBeyondEnd(
                    f"{partition} ends at {ends[partition]}, but the database has done all before {offset}: was the "
                    "topic created anew? Then delete its rows from the table of offsets, or use another scope"
                )
            self._consumer.seek(partition, offset)
        self.unclaimed.difference_update(partitions)
        self._let_go(partitions)

    def step_back(self, fenced: PartitionFenced) -> None:
        """Others have claimed partitions that we work on: who has the newer generation of the group is right."""
        ours, unsettled = self.generation, self._hand.unsettled()
        for partition, theirs in fenced.partitions.items():
            if ours == theirs:
                raise PartitionTakenTwice(
                    f"{partition} was claimed by another worker of this scope, in the same generation of the group: "
                    "is it assigned to two consumers, or is one scope used by two groups?"
                ) from fenced
            self._hand.drop([partition])
            self._hold([partition])
            if partition in unsettled:  # the database may not know a position yet
                self._consumer.seek(partition, unsettled[partition])
            if ours > theirs:
                self.unclaimed.add(partition)
            else:
                self._guard.give_up([partition])
                self._given_up.add(partition)

    # --- while nothing can be done
    # ----------------------------------------------------------------------------------------

    def pause_all(self) -> None:
        self._hold(self._consumer.assignment())

    def resume_all(self) -> None:
        self._let_go(self._held - self.unclaimed - self._given_up)

    def _hold(self, partitions: Collection[TopicPartition]) -> None:
        running = set(partitions) - self._consumer.paused()
        if running:
            self._consumer.pause(*running)
            self._held |= running

    def _let_go(self, partitions: Collection[TopicPartition]) -> None:
        held = self._held.intersection(partitions, self._consumer.assignment())
        self._held.difference_update(partitions)
        if held:
            self._consumer.resume(*held)

    def return_unsettled(self) -> None:
        """What is in hand and not dealt with is to be read again."""
        for partition, offset in self._hand.unsettled().items():
            if partition in self._consumer.assignment():
                self._consumer.seek(partition, offset)
        self._hand.take([])
        self._hand.spare = []

    # --- offset commits
    # -----------------------------------------------------------------------------------------------------

    def commit(self, timeout_s: float | None) -> None:
        """Tell the broker how far we are, and wait, for `default.api.timeout.ms` if nothing else is said. Failing is no
        harm: what is read again is recognised, and what was not committed is part of the next commit."""
        uncommitted = self._hand.uncommitted
        offsets = uncommitted.hand_over_again() if self.group_id is not None else {}
        if not offsets:
            return
        try:
            self._consumer.commit(offsets, timeout=timeout_s)
        except BaseException as error:
            uncommitted.failed(offsets)
            if not isinstance(error, OncelogError):
                raise
            _warn(error)
        else:
            uncommitted.committed(offsets)

    def commit_later(self) -> None:
        """Without waiting; the consumer says in a later `poll()` how it ended."""
        uncommitted = self._hand.uncommitted
        offsets = uncommitted.hand_over() if self.group_id is not None else {}
        if not offsets:
            return

        def ended(_: object, error: BaseException | None) -> None:
            if error is None:
                uncommitted.committed(offsets)
            else:
                uncommitted.failed(offsets)
                _warn(error)

        try:
            self._consumer.commit_async(offsets, on_commit=ended)
        except BaseException:
            uncommitted.failed(offsets)
            raise


def _warn(error: BaseException) -> None:
    logger.warning("offsets were not committed to the broker, records may be read again: %s", error)
