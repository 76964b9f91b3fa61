from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import InvalidConfig
from oncelog.faults.rules import (
    ERROR_CODES,
    MAX_MS,
    RULE_NAMES,
    UNHARMED,
    ConnectionScript,
    Direction,
    Draw,
    Fault,
    Rule,
    Script,
    Verdict,
)
from oncelog.wire.api import ApiKey
from tests.faults_tool.line import REQUEST, RESPONSE, always

TIMED = {"delay": "ms", "stall": "ms", "drop_request": "cut_after_ms", "drop_response": "cut_after_ms"}


def drawing(*numbers: float) -> Draw:
    """Chance that is known beforehand; running out of it fails the test."""
    left: Iterator[float] = iter(numbers)
    return lambda: next(left)


def judge_many(script: ConnectionScript, count: int, direction: Direction = REQUEST, api: int = 0) -> list[Verdict]:
    return [script.judge(direction, api) for _ in range(count)]


def hits(verdicts: list[Verdict]) -> list[int]:
    """Which frames, counted from 1, met a fault."""
    return [number for number, verdict in enumerate(verdicts, 1) if verdict != UNHARMED]


def test_every_fault_has_a_name_that_makes_it() -> None:
    options = {
        "delay": {"ms": 5},
        "stall": {"ms": 5},
        "refuse_request": {"error": "NOT_COORDINATOR"},
    }
    rules = {name: getattr(Rule, name)("EndTxn", **options.get(name, {})) for name in RULE_NAMES}
    assert [rule.name for rule in rules.values()] == list(RULE_NAMES)
    assert len(RULE_NAMES) == 12
    assert {rule.fault for rule in rules.values()} == {*Fault}


def test_without_a_condition_every_frame_of_the_api_and_direction_is_hit() -> None:
    script = Script([Rule.drop_response("Produce", "Fetch", cut_after_ms=3)]).connection([always(0.999)])
    for api in (ApiKey.PRODUCE, ApiKey.FETCH):
        assert script.judge(RESPONSE, api)[:3] == (0, Fault.DROP, 3)
        assert script.judge(REQUEST, api) == UNHARMED
    assert script.judge(RESPONSE, ApiKey.METADATA) == UNHARMED


def test_a_rule_without_apis_is_about_all_even_unknown_ones() -> None:
    script = Script([Rule.cut()]).connection([always()])
    assert script.judge(REQUEST, 9_999).fault is Fault.CUT


def test_probability_asks_chance_once_per_frame() -> None:
    script = Script([Rule.cut(probability=0.5)]).connection([drawing(0.5, 0.49, 0.0, 0.0, 0.9)])
    # A hit draws two more numbers, for its time and its share.
    assert hits(judge_many(script, 3)) == [2]


def test_probability_zero_never_hits_and_one_always_does() -> None:
    never = Script([Rule.cut(probability=0.0)]).connection([always(0.0)])
    surely = Script([Rule.cut(probability=1.0)]).connection([always(0.999_999)])
    assert hits(judge_many(never, 10)) == []
    assert hits(judge_many(surely, 3)) == [1, 2, 3]


def test_every_counts_the_frames_of_its_own_api_on_each_connection() -> None:
    book = Script([Rule.cut("Produce", every=3)])
    first, second = book.connection([always()]), book.connection([always()])
    assert hits(judge_many(first, 5)) == [3]
    assert hits(judge_many(first, 5, api=ApiKey.METADATA)) == []
    assert hits(judge_many(first, 1)) == [1]  # its sixth
    assert hits(judge_many(second, 6)) == [3, 6]


def test_a_limit_is_shared_by_all_connections() -> None:
    book = Script([Rule.cut(limit=3)])
    first, second = book.connection([always()]), book.connection([always()])
    assert hits(judge_many(first, 2)) == [1, 2]
    assert hits(judge_many(second, 5)) == [1]
    assert hits(judge_many(first, 5)) == []


def test_a_hit_behind_another_rules_hit_does_not_use_up_the_limit() -> None:
    rules = [Rule.cut(every=2), Rule.duplicate_request(limit=2)]
    script = Script(rules).connection([always(), always()])
    faults = [verdict.fault for verdict in judge_many(script, 5)]
    assert faults == [Fault.DUPLICATE, Fault.CUT, Fault.DUPLICATE, Fault.CUT, None]


def test_delays_add_up_and_the_first_other_fault_wins() -> None:
    rules = [
        Rule.delay(ms=10),
        Rule.duplicate_request(),
        Rule.delay(ms=5),
        Rule.cut(),
    ]
    verdict = Script(rules).connection([always()] * 4).judge(REQUEST, 0)
    assert (verdict.delay_ms, verdict.fault) == (15, Fault.DUPLICATE)


def test_times_are_drawn_from_their_range_both_ends_included() -> None:
    script = Script([Rule.delay(ms=(5, 8), every=1)]).connection([drawing(0.0, 0.1, 0.999, 0.1, 0.5, 0.1)])
    assert [verdict.delay_ms for verdict in judge_many(script, 3)] == [5, 8, 7]


def test_a_healed_script_harms_nothing() -> None:
    book = Script([Rule.cut(), Rule.delay(ms=5)])
    script = book.connection([always(), always()])
    assert script.judge(REQUEST, 0) != UNHARMED
    book.heal()
    assert script.judge(REQUEST, 0) == UNHARMED
    assert book.connection([always(), always()]).judge(REQUEST, 0) == UNHARMED


@given(st.integers(), st.lists(st.tuples(st.sampled_from(Direction), st.sampled_from([0, 1, 3]))))
def test_a_rules_decisions_do_not_depend_on_other_rules_or_the_other_direction(
    seed: int, frames: list[tuple[Direction, int]]
) -> None:
    alone = Rule.drop_response("Produce", probability=0.5, cut_after_ms=(0, 50))
    others = [Rule.delay(ms=(1, 9), on="response", probability=0.5), Rule.cut(probability=0.3)]
    together = Script([alone, *others]).connection([random.Random(f"{seed}/{rule}").random for rule in range(3)])
    single = Script([alone]).connection([random.Random(f"{seed}/0").random])
    with_others = [together.judge(*frame) for frame in frames]
    responses = [single.judge(*frame) for frame in frames if frame[0] is RESPONSE]
    assert [v[1:] for v, f in zip(with_others, frames, strict=True) if f[0] is RESPONSE] == [v[1:] for v in responses]


TEXTS = [
    ("drop_response Produce probability=0.02", Rule.drop_response("Produce", probability=0.02)),
    ("drop_request Fetch,Produce cut_after_ms=0-9", Rule.drop_request("Produce", "Fetch", cut_after_ms=(0, 9))),
    ("delay Produce ms=5-50", Rule.delay("Produce", ms=(5, 50))),
    ("delay ms=5 on=response limit=2", Rule.delay(ms=5, on="response", limit=2)),
    ("cut every=200", Rule.cut(every=200)),
    ("reorder_requests Produce", Rule.reorder_requests("Produce")),
    ("stall Fetch ms=1000 every=7", Rule.stall("Fetch", ms=1_000, every=7)),
    ("truncate_response Metadata Produce", Rule.truncate_response("Metadata", "Produce")),
    ("drop-response Produce 0.02", Rule.drop_response("Produce", probability=0.02)),
    ("cut .5", Rule.cut(probability=0.5)),
    ("refuse_request EndTxn error=NOT_COORDINATOR", Rule.refuse_request("EndTxn", error="NOT_COORDINATOR")),
]


@pytest.mark.parametrize(("text", "rule"), TEXTS)
def test_rules_are_read_from_text(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule


@given(
    st.sampled_from([name for name in RULE_NAMES if name != "refuse_request"]),
    st.sets(st.sampled_from([key.schema_prefix for key in ApiKey]), max_size=3),
    st.fixed_dictionaries({}, optional={"limit": st.integers(1, 99)})
    | st.fixed_dictionaries({"every": st.integers(1, 99)})
    | st.fixed_dictionaries({"probability": st.floats(0, 1)}),
    st.tuples(st.integers(0, MAX_MS), st.integers(0, MAX_MS)).map(lambda pair: (min(pair), max(pair))),
    st.sampled_from(["request", "response"]),
)
def test_every_rule_is_the_one_that_its_text_reads_as(
    name: str, apis: set[str], when: dict[str, float], ms: tuple[int, int], on: str
) -> None:
    timed = {TIMED[name]: ms} if name in TIMED else {}
    sided = {"on": on} if name in ("delay", "stall", "cut") else {}
    rule: Rule = getattr(Rule, name)(*apis, **timed, **sided, **when)
    assert Rule.parse(str(rule)) == rule


@given(st.sampled_from(["EndTxn", "Produce", "OffsetCommit"]), st.sampled_from(sorted(ERROR_CODES)), st.integers(1, 9))
def test_every_refusal_is_the_one_that_its_text_reads_as(api: str, error: str, limit: int) -> None:
    rule = Rule.refuse_request(api, error=error, limit=limit)
    assert Rule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "unknown fault ''"),
        ("drop_reponse Produce", "did you mean drop_response?"),
        ("drop_response Prodce", "unknown API 'Prodce'; did you mean Produce?"),
        ("drop_response probability=often", "probability=often of drop_response is not a number"),
        ("drop_response probability=1.5", "not between 0 and 1"),
        ("drop_response probability=nan", "not between 0 and 1"),
        ("cut every=0", "every=0 of cut is less than 1"),
        ("cut every=2-3", "not a number"),
        ("cut limit=0", "limit=0 of cut is less than 1"),
        ("cut every=2 probability=0.5", "choose one"),
        ("cut ms=5", "cut has no time"),
        ("cut sometimes=5", "unexpected keyword argument 'sometimes'"),
        ("cut on=both", "on='both' is neither 'request' nor 'response'"),
        ("delay Produce", "missing 1 required keyword-only argument: 'ms'"),
        ("delay ms=50-5", "ms=50-5 of delay is not a time"),
        (f"stall ms={MAX_MS + 1}", "is not a time"),
        ("drop_request cut_after_ms=-1", "not a number"),
        ("refuse_request EndTxn", "missing 1 required keyword-only argument: 'error'"),
        ("refuse_request error=NOT_COORDINATOR", "needs the APIs"),
        ("refuse_request EndTxn error=NOT_COORDINATR", "is unknown; did you mean NOT_COORDINATOR?"),
        ("refuse_request Metadata error=NOT_COORDINATOR", "cannot refuse Metadata"),
        ("cut EndTxn error=NOT_COORDINATOR", "cut refuses nothing"),
    ],
)
def test_a_wrong_rule_is_refused_and_says_why(text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Rule.parse(text)
    assert complaint in str(caught.value)
