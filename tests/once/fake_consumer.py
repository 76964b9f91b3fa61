"""A consumer of one process: partitions as lists, a group that the test moves about, and nothing behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from oncelog.client.consumer_records import NO_GENERATION, GroupMetadata
from oncelog.types import TopicPartition


@dataclass(frozen=True)
class Config:
    group_id: str | None = "billing"
    enable_auto_commit: bool = False


class FakeConsumer:
    """Reads from `log`. What is in `plan` happens at the beginning of the next polls, one at a time."""

    def __init__(self, log: Mapping[TopicPartition, list[Any]], config: Config | None = None) -> None:
        self.config = config or Config()
        self.log = log
        self.plan: deque[Callable[[], object]] = deque()
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.generation = 0
        self._paused: set[TopicPartition] = set()
        self._topics: Any = None
        self._callbacks = SimpleNamespace(on_assigned=None, on_revoked=None, on_lost=None)

    # --- the group, moved by the test ------------------------------------------------------------------------------

    def give(self, *partitions: TopicPartition) -> None:
        self.generation += 1
        for partition in partitions:
            self.positions[partition] = self.committed.get(partition, 0)
        self._callbacks.on_assigned(self, list(partitions))

    def take_away(self, *partitions: TopicPartition) -> None:
        self._callbacks.on_revoked(self, list(partitions))
        self._forget(partitions)

    def lose(self, *partitions: TopicPartition) -> None:
        self._forget(partitions)
        self._callbacks.on_lost(self, list(partitions))

    def _forget(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)
            self._paused.discard(partition)

    # --- what a consumer does --------------------------------------------------------------------------------------

    def subscribe(self, topics: Any, **callbacks: Any) -> None:
        is_new = self._topics is None
        self._topics = topics
        self._callbacks = SimpleNamespace(**callbacks)
        if is_new:
            self.plan.appendleft(lambda: self.give(*self.log))

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, 0)

    def subscription(self) -> Any:
        return self._topics or frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[Any]:
        if self.plan:
            self.plan.popleft()()
        found: list[Any] = []
        for partition, position in sorted(self.positions.items()):
            if partition in self._paused:
                continue
            records = [record for record in self.log[partition] if record.offset >= position]
            records = records[: (max_records or 500) - len(found)]
            if records:
                self.positions[partition] = records[-1].offset + 1
            found += records
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self.positions, f"{partition} is not assigned"
        self.positions[partition] = offset

    def pause(self, *partitions: TopicPartition) -> None:
        assert set(partitions) <= self.positions.keys()
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        assert set(partitions) <= self.positions.keys()
        self._paused.difference_update(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout: float | None = None) -> None:
        self.commits.append(dict(offsets or {}))
        self.committed.update(offsets or {})

    def commit_async(self, offsets: Mapping[TopicPartition, int] | None = None, on_commit: Any = None) -> None:
        self.commit(offsets)
        if on_commit is not None:
            on_commit(offsets, None)

    def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        return {each: self.log[each][-1].offset + 1 if self.log[each] else 0 for each in partitions}

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self.config.group_id or "", self.generation or NO_GENERATION, "member")


class FakeProducer:
    """Keeps what is sent; fails while there is an `error`, for all or for those whose key is `refused`."""

    def __init__(self) -> None:
        self.sent: list[SimpleNamespace] = []
        self.error: Exception | None = None
        self.refused: bytes | None = None

    def send(self, topic: str, **content: Any) -> Any:
        def result(timeout: float | None = None) -> None:
            if self.error is not None and self.refused in (None, content["key"]):
                raise self.error
            self.sent.append(SimpleNamespace(topic=topic, **content))

        return SimpleNamespace(result=result)
