"""What the user must hear from `poll()`: each trouble once, and again only after it had gone."""

from __future__ import annotations

from oncelog.errors import NONE, KafkaError, UnknownTopicOrPartition, error_for_code

DELETED_AFTER = 3
"""So many times in a row metadata must not know a topic that was there: one broker may lag behind the others."""

Subject = tuple[str, int]
"""A topic or a partition, and the code of the error."""


class Complaints:
    def __init__(self) -> None:
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
        untold, self._untold = self._untold, []
        return untold


def _deleted(topic: str) -> str:
    return (
        f"topic {topic!r} does not exist any more: it was deleted while it was read. Unsubscribe from it, or create it"
        " again; everything else is read on"
    )
