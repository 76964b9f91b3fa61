"""What the user must hear from `poll()`: each trouble once, and again only after it had gone.

What is wrong with a place in a log is told when the user gets there: all that was fetched in front of it is handed out
first. A place that is damaged is told of with every poll that would go on there, and once with each.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.client.fetch.inbox import Inbox
from oncelog.client.fetch.partitions import PartitionState
from oncelog.errors import NONE, CorruptMessage, KafkaError, UnknownTopicOrPartition, error_for_code

DELETED_AFTER = 3
"""So many times in a row metadata must not know a topic that was there: one broker may lag behind the others."""

Subject = tuple[str, int]
"""A topic or a partition, and the code of the error."""


class _Ahead(NamedTuple):
    """Something wrong where a partition's next fetch begins."""

    seek_count: int
    error: KafkaError


class Complaints:
    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._ahead: dict[PartitionState, _Ahead] = {}
        self._untold: list[Exception] = []
        self._told: set[Subject] = set()
        self._absences: dict[str, int] = {}

    def add(self, error: Exception) -> None:
        """What does not repeat itself: a state that the user must change."""
        self._untold.append(error)

    def add_once(self, subject: str, error: KafkaError) -> None:
        if (subject, error.code) not in self._told:
            self._told.add((subject, error.code))
            self._untold.append(error)

    def add_ahead(self, state: PartitionState, error: KafkaError) -> None:
        """Of the place where the next fetch begins, which may be far ahead of the reader."""
        if isinstance(error, CorruptMessage) or (str(state.partition), error.code) not in self._told:
            self._ahead[state] = _Ahead(state.seek_count, error)

    def _arrive(self) -> None:
        """Tell of what readers have come to."""
        self._inbox.is_awaited = True  # before we look how far the reader is
        for state, (seek_count, error) in list(self._ahead.items()):
            if seek_count != state.seek_count:
                del self._ahead[state]
            elif not state.is_read_to_the_end:
                continue
            elif not isinstance(error, CorruptMessage):
                del self._ahead[state]
                self.add_once(str(state.partition), error)
            elif state.damage_told_at != self._inbox.looks:
                del self._ahead[state]
                state.damage_told_at = self._inbox.looks
                self._untold.append(error)

    def went_on(self, state: PartitionState) -> None:
        """Its log is read on."""
        self._ahead.pop(state, None)
        self.settle(str(state.partition))

    def settle(self, subject: str) -> None:
        """All is well with it (again)."""
        if self._told:
            self._told = {told for told in self._told if told[0] != subject}

    def judge_topic(self, topic: str, error_code: int, was_known: bool) -> None:
        """What metadata says about a topic that is read. A topic that never was may be created any time; one that was
        deleted under its reader is worth a word."""
        if error_code == NONE:
            self._absences.pop(topic, None)
            self.settle(topic)
            return
        error = error_for_code(error_code)
        if not error.retriable:
            self.add_once(topic, error_for_code(error_code, f"topic {topic!r}: {error.message}"))
        elif error_code == UnknownTopicOrPartition.code and was_known:
            self._absences[topic] = self._absences.get(topic, 0) + 1
            if self._absences[topic] == DELETED_AFTER:
                self.add_once(topic, UnknownTopicOrPartition(_deleted(topic)))

    def take(self) -> list[Exception]:
        if self._ahead:
            self._arrive()
        untold, self._untold = self._untold, []
        return untold


def _deleted(topic: str) -> str:
    return (
        f"topic {topic!r} does not exist any more: it was deleted while it was read. Unsubscribe from it, or create it"
        " again; everything else is read on"
    )
