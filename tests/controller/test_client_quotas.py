"""Plans for quotas: what is written, what is refused, what a filter finds."""

from __future__ import annotations

import math

import pytest

from oncelog.controller.client_quotas import (
    FilterPart,
    MatchType,
    QuotaAlteration,
    QuotaChange,
    alter_client_quotas,
    find_client_quotas,
    unenforced_keys,
)
from oncelog.controller.records import MetadataRecord, RecordType, decode_record, encode_record
from oncelog.controller.state import ControllerState, QuotaEntity
from oncelog.errors import InvalidRequest, UnsupportedVersion

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
WEB: QuotaEntity = (("client-id", "web"),)
EVERY_CLIENT: QuotaEntity = (("client-id", None),)
ALICE: QuotaEntity = (("user", "alice"),)
ALICES_WEB: QuotaEntity = (("client-id", "web"), ("user", "alice"))


def alter(state: ControllerState, entity: QuotaEntity, *changes: tuple[str, float | None]) -> list[MetadataRecord]:
    """Plan, let the records go to the disk and back, replay them."""
    alteration = QuotaAlteration(entity, [QuotaChange(*change) for change in changes])
    records, answers = alter_client_quotas(state, [alteration])
    (error,) = answers.values()
    if error is not None:
        assert not records
        raise error
    for record in records:
        state.replay(decode_record(encode_record(record)))
    return records


def limits(state: ControllerState) -> dict[QuotaEntity, dict[str, float]]:
    return find_client_quotas(state, [], strict=False)


def test_limits_are_set_changed_and_removed() -> None:
    state = ControllerState()
    alter(state, WEB, (PRODUCE, 1000.0), (REQUEST, 0.5))
    alter(state, ALICES_WEB, (PRODUCE, 7.0))
    assert limits(state) == {WEB: {PRODUCE: 1000.0, REQUEST: 0.5}, ALICES_WEB: {PRODUCE: 7.0}}
    alter(state, WEB, (PRODUCE, 2000.0), (REQUEST, None))
    assert limits(state)[WEB] == {PRODUCE: 2000.0}
    alter(state, WEB, (PRODUCE, None))
    assert limits(state) == {ALICES_WEB: {PRODUCE: 7.0}}


def test_a_plan_changes_nothing_and_writes_only_what_is_new() -> None:
    state = ControllerState()
    planned = alter_client_quotas(state, [QuotaAlteration(WEB, [QuotaChange(PRODUCE, 5.0)])])
    assert [record.type for record in planned.records] == [RecordType.CLIENT_QUOTA]
    assert limits(state) == {}
    alter(state, WEB, (PRODUCE, 5.0))
    assert alter(state, WEB, (PRODUCE, 5.0), (FETCH, None)) == []
    assert alter(state, WEB) == []


@pytest.mark.parametrize(
    ("entity", "key", "value", "words"),
    [
        ((), PRODUCE, 1.0, "empty client quota entity"),
        ((("clientid", "web"),), PRODUCE, 1.0, "entity type: clientid"),
        ((("client-id", ""),), PRODUCE, 1.0, "Empty client-id"),
        ((("ip", "10.0.0.1"), ("user", "alice")), "connection_creation_rate", 1.0, "cannot be combined"),
        (WEB, "producer_byte_rates", 1.0, "Invalid configuration key producer_byte_rates"),
        (WEB, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ((("ip", "10.0.0.1"),), PRODUCE, 1.0, "Invalid configuration key"),
        (WEB, PRODUCE, 0.0, "greater than 0"),
        (WEB, PRODUCE, -1.0, "greater than 0"),
        (WEB, REQUEST, math.nan, "greater than 0"),
        (WEB, PRODUCE, 1.5, "fractional"),
        (WEB, FETCH, 1e20, "too large"),
        (WEB, PRODUCE, math.inf, "too large"),
        (WEB, "controller_mutation_rate", 1.0, "not enforced"),
        ((("ip", "10.0.0.1"),), "connection_creation_rate", 1.0, "not enforced"),
    ],
)
def test_refusals(entity: QuotaEntity, key: str, value: float, words: str) -> None:
    state = ControllerState()
    with pytest.raises(InvalidRequest, match=words):
        alter(state, entity, (key, value), (PRODUCE if key == REQUEST else REQUEST, 5.0))
    assert limits(state) == {}


def test_what_is_left_of_a_whole_number_after_its_way_is_forgiven() -> None:
    state = ControllerState()
    alter(state, WEB, (PRODUCE, 1.0000001), (REQUEST, math.inf))
    assert limits(state)[WEB] == {PRODUCE: 1.0000001, REQUEST: math.inf}


@pytest.mark.parametrize(
    "alterations",
    [
        [QuotaAlteration(WEB, [QuotaChange(PRODUCE, 1.0), QuotaChange(PRODUCE, 2.0)])],
        [QuotaAlteration(WEB, [QuotaChange(PRODUCE, 1.0)]), QuotaAlteration(WEB, [QuotaChange(FETCH, 2.0)])],
    ],
    ids=["key", "entity"],
)
def test_what_is_named_twice_is_left_as_it_is(alterations: list[QuotaAlteration]) -> None:
    others = QuotaAlteration(ALICE, [QuotaChange(PRODUCE, 3.0)])
    records, answers = alter_client_quotas(ControllerState(), [others, *alterations])
    assert isinstance(answers[WEB], InvalidRequest)
    assert answers[ALICE] is None
    assert [record.body["entity"] for record in records] == [[{"entity_type": "user", "entity_name": "alice"}]]


def test_a_limit_of_another_broker_can_be_removed() -> None:
    state = ControllerState()
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    body = {"entity": entity, "key": "controller_mutation_rate", "value": 1.0, "remove": False}
    state.replay(MetadataRecord(RecordType.CLIENT_QUOTA, body))
    assert list(unenforced_keys(state)) == ["controller_mutation_rate"]
    alter(state, ALICE, ("controller_mutation_rate", None))
    assert list(unenforced_keys(state)) == []


# --- filters ---


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState()
    for entity in (WEB, EVERY_CLIENT, ALICE, ALICES_WEB):
        alter(state, entity, (PRODUCE, 1.0))
    return state


def part(kind: str, match_type: int = MatchType.ANY, match: str | None = None) -> FilterPart:
    return FilterPart(kind, match_type, match)


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ([], False, {WEB, EVERY_CLIENT, ALICE, ALICES_WEB}),
        ([], True, set()),
        ([part("client-id")], False, {WEB, EVERY_CLIENT, ALICES_WEB}),
        ([part("client-id")], True, {WEB, EVERY_CLIENT}),
        ([part("client-id", MatchType.EXACT, "web")], False, {WEB, ALICES_WEB}),
        ([part("client-id", MatchType.EXACT, "app")], False, set()),
        ([part("client-id", MatchType.DEFAULT)], False, {EVERY_CLIENT}),
        ([part("user"), part("client-id")], True, {ALICES_WEB}),
        ([part("user", MatchType.EXACT, "alice")], False, {ALICE, ALICES_WEB}),
        ([part("ip")], False, set()),
    ],
)
def test_filters(state: ControllerState, parts: list[FilterPart], strict: bool, found: set[QuotaEntity]) -> None:
    assert set(find_client_quotas(state, parts, strict=strict)) == found


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([part("")], InvalidRequest),
        ([part("clientid")], UnsupportedVersion),
        ([part("user", 3)], InvalidRequest),
        ([part("user", MatchType.EXACT)], InvalidRequest),
        ([part("user", MatchType.DEFAULT, "alice")], InvalidRequest),
        ([part("user", MatchType.ANY, "alice")], InvalidRequest),
        ([part("user"), part("user", MatchType.DEFAULT)], InvalidRequest),
        ([part("user"), part("ip")], InvalidRequest),
    ],
)
def test_filters_that_mean_nothing(state: ControllerState, parts: list[FilterPart], error: type[Exception]) -> None:
    with pytest.raises(error):
        find_client_quotas(state, parts, strict=False)
