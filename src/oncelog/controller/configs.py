"""Plans for config changes: key by key (IncrementalAlterConfigs) or all at once (AlterConfigs).

Returns records with the answer per resource; changes nothing. Which keys and values are legal is the schema's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

from oncelog.controller.config_schema import ConfigSchema
from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import ConfigResource, ControllerState, Outcome, ResourceType
from oncelog.controller.topic_names import check_topic_name
from oncelog.errors import InvalidConfig, InvalidRequest, KafkaError, UnknownTopicOrPartition
from oncelog.named_tuple import NamedTuple

ALL_BROKERS = ""
"""The resource name of the settings that hold for every broker."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """What is asked of one resource; its type and name as they came over the wire."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]


Answers = list[KafkaError | None]


def incremental_alter_configs(
    state: ControllerState, node_id: int, schema: ConfigSchema, resources: Sequence[ResourceChange]
) -> Outcome[Answers]:
    return _alter(state, node_id, schema, resources, keep_others=True)


def alter_configs(
    state: ControllerState, node_id: int, schema: ConfigSchema, resources: Sequence[ResourceChange]
) -> Outcome[Answers]:
    """The older way: what is not named goes back to its default."""
    return _alter(state, node_id, schema, resources, keep_others=False)


def _alter(
    state: ControllerState,
    node_id: int,
    schema: ConfigSchema,
    resources: Sequence[ResourceChange],
    *,
    keep_others: bool,
) -> Outcome[Answers]:
    times_named = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    answers: Answers = []
    records: list[MetadataRecord] = []
    planned: dict[ConfigResource, Mapping[str, str]] = {}
    for asked in resources:
        try:
            if times_named[asked.resource_type, asked.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            resource = _resource(state, node_id, asked)
            present = state.configs(resource)
            wanted = _apply(schema, resource.type, present if keep_others else {}, asked.changes)
            changed = frozenset(
                name for name in present.keys() | wanted.keys() if present.get(name) != wanted.get(name)
            )
            if changed:
                schema.validate(resource, wanted, changed, planned)
                planned[resource] = wanted
            records += [_config_record(resource, name, wanted.get(name)) for name in sorted(changed)]
            answers.append(None)
        except KafkaError as error:
            answers.append(error)
    return Outcome(records, answers)


def _resource(state: ControllerState, node_id: int, asked: ResourceChange) -> ConfigResource:
    """The resource that is meant, if it is one whose configs can be altered."""
    if asked.resource_type == ResourceType.TOPIC:
        if not asked.resource_name:
            raise InvalidRequest("Default topic resources are not allowed.")
        check_topic_name(asked.resource_name)
        if state.topic(asked.resource_name) is None:
            raise UnknownTopicOrPartition(f"The topic '{asked.resource_name}' does not exist.")
    elif asked.resource_type == ResourceType.BROKER:
        check_broker_name(node_id, asked.resource_name)
    elif asked.resource_type == ResourceType.GROUP:
        if not asked.resource_name:
            raise InvalidRequest("Default group resources are not allowed.")
    else:
        raise InvalidRequest(f"Unknown resource type {asked.resource_type}")
    return ConfigResource(ResourceType(asked.resource_type), asked.resource_name)


def check_broker_name(node_id: int, name: str) -> None:
    if name in (ALL_BROKERS, str(node_id)):
        return
    if not name.isascii() or not name.lstrip("-").isdigit():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    raise InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {name}")


def _apply(
    schema: ConfigSchema, resource_type: ResourceType, present: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    """The configs that the resource would have afterwards."""
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.value is None and change.operation != Operation.DELETE]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")
    wanted = dict(present)
    for change in changes:
        if change.operation == Operation.SET:
            wanted[change.name] = change.value or ""
        elif change.operation == Operation.DELETE:
            wanted.pop(change.name, None)
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            operation = Operation(change.operation)
            wanted[change.name] = _edited_list(schema, resource_type, wanted.get(change.name), change, operation)
        else:
            raise InvalidRequest(f"Unknown config operation {change.operation} for {change.name}")
    return wanted


def _edited_list(
    schema: ConfigSchema, resource_type: ResourceType, text: str | None, change: ConfigChange, operation: Operation
) -> str:
    if not schema.is_list(resource_type, change.name):
        raise InvalidConfig(f"Can't {operation.name} to key {change.name} because its type is not LIST.")
    if text is None:
        text = schema.default(resource_type, change.name) or ""
    elements = _elements(text)
    named = _elements(change.value or "")
    if operation is Operation.APPEND:
        present = frozenset(elements)
        return ",".join(elements + [element for element in named if element not in present])
    taken = frozenset(named)
    return ",".join(element for element in elements if element not in taken)


def _elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _config_record(resource: ConfigResource, name: str, value: str | None) -> MetadataRecord:
    return MetadataRecord(
        RecordType.CONFIG,
        {"resource_type": resource.type, "resource_name": resource.name, "name": name, "value": value},
    )
