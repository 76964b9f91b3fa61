"""The shapes of group requests and their answers: a refusal in the words of each API, and requests for many groups
taken apart and their answers put together.

Pure: it decides neither what is refused nor who coordinates a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncelog.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, KafkaError
from oncelog.named_tuple import NamedTuple
from oncelog.types import NO_OFFSET
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

NO_PLACE = -1
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_FETCH_WITH_GROUP_ERRORS = 2
FIRST_FETCH_OF_MANY_GROUPS = 8
FIRST_TRANSACTIONAL_COMMIT_WITH_LOADING = 2


def refusal(api_key: int, version: int, body: Message, error: KafkaError) -> Message:
    """The answer to a request that no coordinator took."""
    if api_key == ApiKey.HEARTBEAT and isinstance(error, CoordinatorLoadInProgress):
        return {"error_code": 0}  # as Kafka: nobody's session ends while groups are being loaded
    shape = _REFUSALS.get(api_key)
    return {"error_code": error.code} if shape is None else shape(version, body, error)


def _refused_join(version: int, _: Message, error: KafkaError) -> Message:
    return {"error_code": error.code, "protocol_name": None if version >= FIRST_JOIN_WITH_NULL_PROTOCOL else ""}


def _refused_commit(_: int, body: Message, error: KafkaError) -> Message:
    return {
        "topics": [
            {"name": topic["name"], "topic_id": topic["topic_id"], "partitions": _refused_partitions(topic, error)}
            for topic in body["topics"]
        ]
    }


def _refused_transactional_commit(version: int, body: Message, error: KafkaError) -> Message:
    if isinstance(error, CoordinatorLoadInProgress) and version < FIRST_TRANSACTIONAL_COMMIT_WITH_LOADING:
        error = CoordinatorNotAvailable(error.message)
    topics = body["topics"]
    return {"topics": [{"name": topic["name"], "partitions": _refused_partitions(topic, error)} for topic in topics]}


def _refused_partitions(topic: Message, error: KafkaError) -> list[Message]:
    indexes = (partition["partition_index"] for partition in topic["partitions"])
    return [{"partition_index": index, "error_code": error.code} for index in indexes]


def _refused_fetch(version: int, body: Message, error: KafkaError) -> Message:
    if version >= FIRST_FETCH_OF_MANY_GROUPS:
        return {"groups": [{"group_id": group["group_id"], "error_code": error.code} for group in body["groups"]]}
    if version >= FIRST_FETCH_WITH_GROUP_ERRORS:
        return {"error_code": error.code}
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": NO_OFFSET,
                        "metadata": "",
                        "error_code": error.code,
                    }
                    for index in topic["partition_indexes"]
                ],
            }
            for topic in body["topics"] or ()
        ]
    }


def _refused_heartbeat(_: int, __: Message, error: KafkaError) -> Message:
    return {"error_code": error.code, "error_message": error.message}


def _each_refused(api_key: ApiKey) -> Callable[[int, Message, KafkaError], Message]:
    asked, answered = MANY_GROUPS[api_key][:2]

    def refuse(_: int, body: Message, error: KafkaError) -> Message:
        return {answered: [{"group_id": group_id, "error_code": error.code} for group_id in body[asked]]}

    return refuse


class ManyGroups(NamedTuple):
    """Where a request that names many groups lists them, and where its answer does."""

    asked: str
    answered: str
    id_of: Callable[[object], str]
    wants_names: bool = False
    """Whether the empty id is refused, where the other APIs only find no such group."""

    def split(self, body: Message, place_of: Callable[[str], int]) -> dict[int, Message]:
        """One body for each place, with its own groups only; for NO_PLACE those whose ids are none."""
        parts: dict[int, list[object]] = {}
        for asked in body[self.asked]:
            group_id = self.id_of(asked)
            place = NO_PLACE if self.wants_names and not group_id else place_of(group_id)
            parts.setdefault(place, []).append(asked)
        return {place: {**body, self.asked: groups} for place, groups in parts.items()}

    def merge(self, body: Message, answers: Iterable[Message]) -> Message:
        """The groups in the order in which they were asked for."""
        order = {self.id_of(asked): position for position, asked in enumerate(body[self.asked])}
        groups = [group for answer in answers for group in answer[self.answered]]
        return {self.answered: sorted(groups, key=lambda group: order[group["group_id"]])}


def _itself(asked: object) -> str:
    return str(asked)


def _its_group_id(asked: object) -> str:
    assert isinstance(asked, dict)
    return str(asked["group_id"])


MANY_GROUPS: dict[int, ManyGroups] = {
    ApiKey.DESCRIBE_GROUPS: ManyGroups("groups", "groups", _itself),
    ApiKey.DELETE_GROUPS: ManyGroups("groups_names", "results", _itself),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ManyGroups("group_ids", "groups", _itself, wants_names=True),
    ApiKey.OFFSET_FETCH: ManyGroups("groups", "groups", _its_group_id),
}

_REFUSALS: dict[int, Callable[[int, Message, KafkaError], Message]] = {
    ApiKey.JOIN_GROUP: _refused_join,
    ApiKey.OFFSET_COMMIT: _refused_commit,
    ApiKey.TXN_OFFSET_COMMIT: _refused_transactional_commit,
    ApiKey.OFFSET_FETCH: _refused_fetch,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _refused_heartbeat,
    **{
        key: _each_refused(key)
        for key in (ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)
    },
}
