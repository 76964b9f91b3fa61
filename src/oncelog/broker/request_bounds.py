"""What one request may ask for: how large it may be, how many things it may name, and that naming one again asks for
nothing more.

Owns these bounds for all APIs. The loop serves everybody, so what is bounded is the work of a request, not only its
memory: a handler works once for each thing that is named, and is never given one twice. Kafka answers most repeats as
often as they come; its clients send none. Where it has an error for them (CreateTopics, DeleteTopics, AlterConfigs,
CreatePartitions, ListOffsets) the handler sees them and judges. Pure.
"""

from __future__ import annotations

from oncelog.named_tuple import NamedTuple
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import MalformedMessage, Message
from oncelog.wire.primitives import MAX_REQUEST_ELEMENTS

MAX_PLAIN_REQUEST_BYTES = 8 << 20
"""How large a request may be that carries no records: 10,000 partitions of topics with the longest names, or the
assignments of a large group. `socket.request.max.bytes` is for Produce."""

MAX_BYTES = {ApiKey.JOIN_GROUP: 1 << 20, ApiKey.CONSUMER_GROUP_HEARTBEAT: 512 << 10}
"""Where it is less: what a member says of itself becomes a record of its group, which must fit a batch."""

MAX_ELEMENTS = {
    ApiKey.LIST_GROUPS: 1_000,
    ApiKey.LIST_TRANSACTIONS: 1_000,
    ApiKey.LIST_CONFIG_RESOURCES: 1_000,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1_000,
    ApiKey.WRITE_TXN_MARKERS: 5_000,
    ApiKey.LEAVE_GROUP: 5_000,
}
"""How many elements a request may hold where that is less than `MAX_REQUEST_ELEMENTS`: filters, which every coordinator
or entity is held against, and what is written for each element."""


class Once(NamedTuple):
    """An array of a request whose elements each name something: of one thing the first is answered."""

    array: str
    key: tuple[str, ...] = ()
    """The fields that name it; none: the element is its name."""
    merged: tuple[str, ...] = ()
    """Arrays of it that grow by what a repeat has in them."""
    inside: tuple[Once, ...] = ()


def _topics(partitions: str, *partition_key: str, name: str = "name") -> Once:
    return Once("topics", (name,), (partitions,), (Once(partitions, partition_key),))


_BY_NAME_OR_ID = Once("topics", ("name", "topic_id"), ("partition_indexes",), (Once("partition_indexes"),))

NAMED_ONCE: dict[int, tuple[Once, ...]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Once("v3_and_below_topics", ("name",), ("partitions",), (Once("partitions"),)),
        Once("transactions", ("transactional_id",), (), (_topics("partitions"),)),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Once("group_ids"),),
    ApiKey.DELETE_GROUPS: (Once("groups_names"),),
    ApiKey.DELETE_RECORDS: (Once("topics", ("name",), ("partitions",)),),
    ApiKey.DESCRIBE_CONFIGS: (Once("resources", ("resource_type", "resource_name")),),
    ApiKey.DESCRIBE_GROUPS: (Once("groups"),),
    ApiKey.DESCRIBE_LOG_DIRS: (_topics("partitions", name="topic"),),
    ApiKey.DESCRIBE_PRODUCERS: (_topics("partition_indexes"),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Once("transactional_ids"),),
    ApiKey.FIND_COORDINATOR: (Once("coordinator_keys"),),
    ApiKey.LEAVE_GROUP: (Once("members", ("member_id", "group_instance_id")),),
    ApiKey.LIST_GROUPS: (Once("states_filter"), Once("types_filter")),
    ApiKey.LIST_OFFSETS: (Once("topics", ("name",), ("partitions",)),),
    ApiKey.LIST_TRANSACTIONS: (Once("state_filters"), Once("producer_id_filters")),
    ApiKey.OFFSET_DELETE: (_topics("partitions", "partition_index"),),
    ApiKey.OFFSET_FETCH: (_topics("partition_indexes"), Once("groups", ("group_id",), (), (_BY_NAME_OR_ID,))),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_topics("partitions", "partition", name="topic"),),
    ApiKey.WRITE_TXN_MARKERS: (
        Once(
            "markers",
            ("producer_id", "producer_epoch", "coordinator_epoch", "transaction_result", "transaction_version"),
            ("topics",),
            (_topics("partition_indexes"),),
        ),
    ),
}


def max_elements(api_key: int) -> int:
    return MAX_ELEMENTS.get(api_key, MAX_REQUEST_ELEMENTS)  # type: ignore[call-overload, no-any-return]


def check_size(api_key: int, size_bytes: int) -> None:
    most = MAX_BYTES.get(api_key, MAX_PLAIN_REQUEST_BYTES)  # type: ignore[call-overload]
    if size_bytes > most and api_key != ApiKey.PRODUCE:
        raise MalformedMessage(f"a request of {size_bytes} bytes; one of its kind, without records, has at most {most}")


def name_once(api_key: int, body: Message) -> None:
    """Take out of the request what it names again."""
    for rule in NAMED_ONCE.get(api_key, ()):
        _apply(rule, body)


def _apply(rule: Once, message: Message) -> None:
    elements: list[Message] | None = message.get(rule.array)
    if not elements:
        return
    if len(elements) > 1:
        elements = message[rule.array] = _first_of_each(rule, elements)
    for inner in rule.inside:
        for element in elements:
            _apply(inner, element)


def _first_of_each(rule: Once, elements: list[Message]) -> list[Message]:
    if not rule.key:
        return list(dict.fromkeys(elements))
    found: dict[tuple[object, ...], Message] = {}
    for element in elements:
        first = found.setdefault(tuple([element[field] for field in rule.key]), element)
        if first is not element:
            for array in rule.merged:
                first[array].extend(element[array])
    return list(found.values())
