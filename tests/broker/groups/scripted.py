"""A coordinator that knows no groups, only what the test tells it: so the runtime around it can be seen alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from oncelog.coordinator.effects import Caller, Effects, Reply, no_effects
from oncelog.coordinator.records import CoordinatorRecord, offset_commit
from oncelog.errors import NotCoordinator
from oncelog.types import NO_OFFSET, NO_PRODUCER_ID
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

WAITS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)


class ScriptedCoordinator:
    """Commits are records, joins wait until `release`, groups that are described are as they were asked for."""

    made: list[ScriptedCoordinator] = []

    def __init__(self, settings: Any, topics: Any, new_id: Callable[[], str], room: Any = None) -> None:
        self.settings = settings
        self.topics = topics
        self.committed: dict[tuple[str, str, int], int] = {}
        self.waiting: list[Caller] = []
        self.callers: list[Caller] = []
        self.calls: list[str] = []
        self.deadline_ms: int | None = None
        self.stays_due = False
        self.due: Effects = no_effects()
        ScriptedCoordinator.made.append(self)

    def handle(self, api_key: ApiKey, body: Message, caller: Caller, now_ms: int) -> Effects:
        self.callers.append(caller)
        if api_key in WAITS:
            self.waiting.append(caller)
            return no_effects()
        if api_key == ApiKey.OFFSET_COMMIT:
            return Effects(commit_records(body), [Reply(caller.ticket, answered_commit(body))])
        return Effects([], [Reply(caller.ticket, self._answer(api_key, body))])

    def _answer(self, api_key: ApiKey, body: Message) -> Message:
        if api_key == ApiKey.DESCRIBE_GROUPS:
            return {"groups": [{"group_id": group_id, "group_state": "Stable"} for group_id in body["groups"]]}
        return {"error_code": 0}

    def listing(self, body: Message) -> Iterator[Message | None]:
        yield None
        for group in dict.fromkeys(key[0] for key in self.committed):
            yield {"group_id": group}

    def release(self) -> Effects:
        """Everybody who waits is answered."""
        waiting, self.waiting = self.waiting, []
        return Effects([], [Reply(caller.ticket, {"error_code": 0, "generation_id": 1}) for caller in waiting])

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,
        log_offset: int = NO_OFFSET,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        key = record.key
        if record.value is not None and producer_id == NO_PRODUCER_ID:
            self.committed[key["group"], key["topic"], key["partition"]] = record.value["offset"]

    def loaded(self, now_ms: int) -> Effects:
        self.calls.append("loaded")
        return no_effects()

    def expire(self, now_ms: int) -> Effects:
        self.calls.append(f"expire {now_ms}")
        if not self.stays_due:
            self.deadline_ms = None
        due, self.due = self.due, no_effects()
        return due

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def topics_changed(self, now_ms: int) -> Effects:
        self.calls.append("topics changed")
        return no_effects()

    def forget(self, ticket: object) -> None:
        self.waiting = [caller for caller in self.waiting if caller.ticket is not ticket]

    def unload(self) -> list[Reply]:
        waiting, self.waiting = self.waiting, []
        return [Reply(caller.ticket, {"error_code": NotCoordinator.code}) for caller in waiting]


def commit_records(body: Message) -> list[CoordinatorRecord]:
    return [
        offset_commit(
            body["group_id"],
            topic["name"],
            partition["partition_index"],
            offset=partition["committed_offset"],
            leader_epoch=-1,
            metadata=partition["committed_metadata"] or "",
            commit_timestamp_ms=0,
        )
        for topic in body["topics"]
        for partition in topic["partitions"]
    ]


def answered_commit(body: Message) -> Message:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [{"partition_index": each["partition_index"]} for each in topic["partitions"]],
            }
            for topic in body["topics"]
        ]
    }
