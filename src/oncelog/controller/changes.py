"""The records of a plan as changes: what is in force together, and never in part.

Owns what belongs together: a new topic with its partitions and its configs, the partitions that a topic grows by, the
configs of one resource. Whoever looks between two changes sees some of them, each as a whole. Pure, but for the replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from uuid import UUID

from oncelog.controller.records import AnyRecord, NewPartitions, RecordType
from oncelog.controller.state import ControllerState, ResourceType, Topic
from oncelog.named_tuple import NamedTuple


class Change(NamedTuple):
    records: list[AnyRecord]
    removed: list[Topic]
    """The topics that are no more, as they were."""
    now_ms: int


def changes(records: Sequence[AnyRecord], state: ControllerState, now_ms: int) -> Iterator[Change]:
    """Each of them is in force once it is asked for."""
    for _, group in groupby(records, key=_Subjects()):
        together = list(group)
        removed = [_removed_topic(state, record) for record in together if record.type is RecordType.REMOVE_TOPIC]
        for record in together:
            state.replay(record)
        yield Change(together, removed, now_ms)


def _removed_topic(state: ControllerState, record: AnyRecord) -> Topic:
    assert not isinstance(record, NewPartitions)
    topic = state.topic_by_id(record.body["topic_id"])
    assert topic is not None, "records are about topics that exist"
    return topic


class _Subjects:
    """What each record is about; a topic by its name if that is among the records, else by its id."""

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}

    def __call__(self, record: AnyRecord) -> tuple[object, ...]:
        if isinstance(record, NewPartitions):
            return self._topic(record.topic_id)
        body = record.body
        match record.type:
            case RecordType.TOPIC:
                self._names[body["topic_id"]] = body["name"]
                return self._topic(body["topic_id"])
            case RecordType.PARTITION | RecordType.PARTITION_CHANGE:
                return self._topic(body["topic_id"])
            case RecordType.REMOVE_TOPIC:
                return "removal", body["topic_id"]
            case RecordType.CONFIG:
                return ResourceType(body["resource_type"]), body["resource_name"]
        return ("the rest",)

    def _topic(self, topic_id: UUID) -> tuple[object, ...]:
        return ResourceType.TOPIC, self._names.get(topic_id, topic_id)
