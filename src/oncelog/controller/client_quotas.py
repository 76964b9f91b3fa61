"""Client quotas: plans to change them (AlterClientQuotas), and which of them a filter means (DescribeClientQuotas).

Returns records with the answer per entity; changes nothing. Rules and words are Kafka's, with these exceptions, each
because an answer must be true: an entity that is named twice is refused and left as it is (Kafka refuses it and takes
the first); a limit that is no number is refused; and so are limits that are not enforced here, though they may be
removed where another broker left them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import ClientQuota, ControllerState, Outcome, QuotaEntity
from oncelog.errors import InvalidRequest, KafkaError, UnsupportedVersion
from oncelog.named_tuple import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
ENFORCED_KEYS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE})

_WHOLE_KEYS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})
_MAX_WHOLE = float(2**63 - 1)
_FRACTION = 1e-6
"""Less than this is taken for what a number lost on its way."""
_CLIENT_KEYS = ENFORCED_KEYS | {"controller_mutation_rate"}
_IP_KEYS = frozenset({"connection_creation_rate"})


class QuotaChange(NamedTuple):
    key: str
    value: float | None
    """None removes the limit."""


class QuotaAlteration(NamedTuple):
    entity: QuotaEntity
    changes: Sequence[QuotaChange]


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


class FilterPart(NamedTuple):
    """What is asked of one part of an entity; types as they came over the wire."""

    entity_type: str
    match_type: int
    match: str | None


QuotaAnswers = dict[QuotaEntity, KafkaError | None]


# --- changing -----------------------------------------------------------------------------------------------------


def alter_client_quotas(state: ControllerState, alterations: Sequence[QuotaAlteration]) -> Outcome[QuotaAnswers]:
    answers: QuotaAnswers = {}
    records: dict[QuotaEntity, list[MetadataRecord]] = {}
    for entity, changes in alterations:
        is_repeated = entity in answers
        records[entity] = []
        answers[entity] = None
        try:
            if is_repeated or len({change.key for change in changes}) < len(changes):
                raise InvalidRequest(f"Ignoring {describe_entity(entity)}: it, or one of its keys, is named twice")
            records[entity] = _plan(state, entity, changes)
        except KafkaError as error:
            answers[entity] = error
    return Outcome([record for planned in records.values() for record in planned], answers)


def describe_entity(entity: QuotaEntity) -> str:
    """`user alice, the default client-id`."""
    parts = (f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in reversed(entity))
    return ", ".join(parts)


def _plan(state: ControllerState, entity: QuotaEntity, changes: Sequence[QuotaChange]) -> list[MetadataRecord]:
    _check_entity(entity)
    records = []
    for key, value in changes:
        present = state.client_quotas.get(ClientQuota(entity, key))
        if value is not None:
            _check_limit(entity, key, value)
        if value != present:
            records.append(_quota_record(entity, key, value))
    return records


def _check_entity(entity: QuotaEntity) -> None:
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if len(entity) > 1 and IP in dict(entity):
        raise InvalidRequest("Invalid quota entity combination, an ip cannot be combined with a user or client-id")


def _check_limit(entity: QuotaEntity, key: str, value: float) -> None:
    if key not in (_IP_KEYS if IP in dict(entity) else _CLIENT_KEYS):
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:  # nor is what is no number
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if key not in ENFORCED_KEYS:
        raise InvalidRequest(f"{key} is not enforced by this broker, so it cannot be set; only removed")
    if key in _WHOLE_KEYS:
        if value > _MAX_WHOLE:
            raise InvalidRequest(f"Proposed value for {key} is too large for a LONG.")
        if value % 1 > _FRACTION:
            raise InvalidRequest(f"{key} cannot be a fractional value.")


def _quota_record(entity: QuotaEntity, key: str, value: float | None) -> MetadataRecord:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    body = {"entity": parts, "key": key, "value": value or 0.0, "remove": value is None}
    return MetadataRecord(RecordType.CLIENT_QUOTA, body)


# --- finding ------------------------------------------------------------------------------------------------------


def find_client_quotas(
    state: ControllerState, parts: Sequence[FilterPart], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The limits of every entity that has what each part of the filter asks for, and with `strict` nothing else.
    Raises InvalidRequest, UnsupportedVersion."""
    wanted = _wanted(parts)
    found: dict[QuotaEntity, dict[str, float]] = {}
    for (entity, key), value in state.client_quotas.items():
        if _matches(dict(entity), wanted, strict):
            found.setdefault(entity, {})[key] = value
    return found


def unenforced_keys(state: ControllerState) -> Iterator[str]:
    """One for every limit that another broker left here and that has no effect."""
    return (quota.key for quota in state.client_quotas if quota.key not in ENFORCED_KEYS)


def _wanted(parts: Sequence[FilterPart]) -> dict[str, FilterPart]:
    wanted: dict[str, FilterPart] = {}
    for part in parts:
        _check_part(part)
        if part.entity_type in wanted:
            raise InvalidRequest(f"Entity type {part.entity_type} cannot appear more than once in the filter.")
        wanted[part.entity_type] = part
    if len(wanted) > 1 and IP in wanted:
        raise InvalidRequest("Invalid entity filter, an ip cannot be combined with a user or client-id")
    return wanted


def _check_part(part: FilterPart) -> None:
    if not part.entity_type:
        raise InvalidRequest("Invalid empty entity type.")
    if part.entity_type not in ENTITY_TYPES:
        raise UnsupportedVersion(f"Unsupported entity type {part.entity_type}")
    if part.match_type not in tuple(MatchType):
        raise InvalidRequest(f"Unknown match type {part.match_type}")
    match_type = MatchType(part.match_type)
    if (part.match is None) == (match_type is MatchType.EXACT):
        needs = "a name to match" if match_type is MatchType.EXACT else "no name to match"
        raise InvalidRequest(f"The match type {match_type.name} needs {needs}.")


def _matches(entity: Mapping[str, str | None], wanted: Mapping[str, FilterPart], strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    return all(
        kind in entity and (part.match_type == MatchType.ANY or entity[kind] == part.match)
        for kind, part in wanted.items()
    )
