"""The books of a group under faults: who was handed what, and the promises that hold through any of them.

Every tenure (from `assigned` to `let_go`) gets its partition's records in order and with nothing left out, and begins
no later than where the last one ended: so whoever counts to the end has seen every record. The books may be kept by
the members of one process, or read from the journal that members of many processes write together.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oncelog.types import TopicPartition


class Books:
    def __init__(self) -> None:
        self.handed_up_to: defaultdict[TopicPartition, int] = defaultdict(int)
        """All before it was handed out."""
        self.repeated = 0
        """How often a record was handed out again."""
        self.begun: dict[tuple[str, TopicPartition], int] = {}
        """The first record of the newest tenure."""
        self._next: dict[tuple[str, TopicPartition], int | None] = {}

    def assigned(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._next[member, partition] = None
            self.begun.pop((member, partition), None)

    def let_go(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._next.pop((member, partition), None)

    def handed_out(self, member: str, partition: TopicPartition, offsets: list[int]) -> None:
        for offset in offsets:
            assert (member, partition) in self._next, (
                f"{member} is handed {offset} of {partition}, which is not its own"
            )
            expected = self._next[member, partition]
            up_to = self.handed_up_to[partition]
            if expected is None:
                assert offset <= up_to, f"{member} begins {partition} at {offset}, and {up_to} was left out"
                self.begun[member, partition] = offset
            else:
                assert offset == expected, f"{member} got {offset} of {partition} where {expected} is next"
            self.repeated += offset < up_to
            self.handed_up_to[partition] = max(up_to, offset + 1)
            self._next[member, partition] = offset + 1

    def owners(self, partition: TopicPartition) -> list[str]:
        return [member for member, one in self._next if one == partition]


class Journal:
    """A file to which the members of many processes append; each entry at once, so that all are in one order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._read = 0

    def write(self, member: str, what: str, **facts: Any) -> None:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._file, json.dumps({"member": member, "what": what, **facts}).encode() + b"\n")

    def news(self) -> list[dict[str, Any]]:
        """What was written since it was last asked for."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        fresh, self._read = whole[self._read :], len(whole)
        return [json.loads(line) for line in fresh]


class Chronicle:
    """The books that a journal tells of, and what its members said of their offset commits."""

    def __init__(self, journal: Journal) -> None:
        self.books = Books()
        self.entries: list[dict[str, Any]] = []
        self._journal = journal

    def update(self) -> None:
        for entry in self._journal.news():
            self.entries.append(entry)
            member, partitions = entry["member"], [TopicPartition(*one) for one in entry.get("partitions", ())]
            if entry["what"] == "assigned":
                self.books.assigned(member, partitions)
            elif entry["what"] in ("revoked", "lost"):
                self.books.let_go(member, partitions)
            elif entry["what"] == "got":
                for topic, index, offsets in entry["records"]:
                    self.books.handed_out(member, TopicPartition(topic, index), offsets)

    def said(self, what: str, member: str | None = None) -> list[dict[str, Any]]:
        self.update()
        return [entry for entry in self.entries if entry["what"] == what and member in (None, entry["member"])]
