"""Regular expressions of topics: RE2's syntax, whole names, and no expression that takes long."""

from __future__ import annotations

import contextlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.consumer.regex import MAX_KEPT_STEPS, MAX_NAME_WORK, MAX_STEPS, TopicPattern
from oncelog.coordinator.consumer.regex_syntax import MAX_LENGTH
from oncelog.errors import InvalidRegularExpression


def matching(pattern: TopicPattern, names: list[str]) -> frozenset[str]:
    return frozenset(name for name in names if pattern.matches(name))


@pytest.mark.parametrize(
    ("expression", "names", "others"),
    [
        ("orders", ["orders"], ["orders-1", "my-orders", "order"]),
        ("orders.*", ["orders", "orders-1"], ["my-orders"]),
        ("^orders$", ["orders"], ["orders-1"]),
        (r"\Aorders\z", ["orders"], ["orders-1"]),
        (r"a\.b", ["a.b"], ["axb"]),
        ("(foo|bar)-[0-9]+", ["foo-1", "bar-99"], ["foo-", "baz-1"]),
        ("a|", ["a", ""], ["b"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2,}", ["aa", "aaaaaa"], ["a"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("(ab){0}c", ["c"], ["abc"]),
        ("a{,3}", [], ["a", "aaa"]),
        ("(x+?)y??", ["x", "xxy"], ["y"]),
        ("(?i)Ab", ["ab", "AB", "aB"], ["b"]),
        ("(?i:A)b", ["ab", "Ab"], ["aB"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?P<kind>x)(?<n>[0-9])(?:z)", ["x1z"], ["xz"]),
        ("[[:alpha:]]+[^[:alpha:]]", ["abc-"], ["abcd"]),
        ("[^a-c]+", ["xyz"], ["a"]),
        ("[]a]+", ["a"], ["b"]),
        ("[a-]+", ["a-a"], ["b"]),
        (r"[\d._]+", ["1.2_3"], ["a"]),
        (r"\w+\W\d\D", ["ab-1x"], ["ab_1x"]),
        (r"\bfoo\b.*", ["foo", "foo-x"], ["foox"]),
        (r"foo\B.*", ["foox"], ["foo-x", "foo"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"\x61\x{62}", ["ab"], ["ba"]),
        (r"\p{Lu}\pN\P{L}", ["A1-"], ["a1-", "A1b"]),
        (r"\s|é| ", [], ["", "e"]),
        ("", [""], ["a"]),
    ],
)
def test_what_matches(expression: str, names: list[str], others: list[str]) -> None:
    assert matching(TopicPattern(expression), names + others) == frozenset(names)


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "[a", "[b-a]", "*a", "a**", "a++", "a{2,1}", "a{1001}", "(((a{1000}){1000}){1000})", "(?=a)", "(?!a)",
        "(?<=a)b", "(?<!a)b", "(?>a)", r"(a)\1", r"\y", "\\", r"\x{110000}", r"\xg", "(?x)a", "[[:nothing:]]",
        r"\p{Zz}",
        "(((){1000}){1000}){1000}", "((){0,1000}){0,1000}", "(.*a.{245}|" + ".*" * 900 + "zz)",
        "(" * 500 + ")" * 500, "a" * (MAX_LENGTH + 1), "(?P<1>a)",
    ],
)  # fmt: skip
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(expression)


def test_what_makes_others_backtrack_for_ever() -> None:
    for expression in ("(a*)*b", "(a|a)*b", "(a+)+b", ".*.*.*.*.*.*.*.*b"):
        assert not TopicPattern(expression).matches("a" * 249)


def test_many_different_names_do_not_fill_the_memory() -> None:
    pattern = TopicPattern(".*a.{12}")
    names = [f"{number:b}".replace("1", "a").replace("0", "b") for number in range(4_000, 12_000)]
    assert matching(pattern, names) == frozenset(name for name in names if len(name) >= 13 and name[-13] == "a")


HEAVY = "(.*a.{200}|" + ".*" * 250 + "zz)"
"""Small enough to be compiled; nearly every character of a name leads to a state that no name led to before."""


def varied_name(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15:0240b}".replace("1", "a").replace("0", "b")[-240:]


def test_the_work_for_one_name_is_bounded() -> None:
    pattern = TopicPattern(HEAVY)
    with pytest.raises(InvalidRegularExpression, match="too much work to match the topics' names; use fewer"):
        pattern.matches(varied_name(1))
    assert pattern.work < MAX_NAME_WORK + 2 * MAX_STEPS


def test_what_people_write_takes_little_work() -> None:
    names = [f"{place}-{kind}.v{number}" for place in ("eu", "us") for kind in KINDS for number in range(200)]
    for expression in (".*-(orders|payments)\\..*", "[a-zA-Z0-9._-]{1,249}", "(eu|us)-.*", ".*", ".*[0-9]{1,3}"):
        pattern = TopicPattern(expression)
        matching(pattern, names)
        built = pattern.work
        assert built < 2_000
        matching(pattern, names)
        assert pattern.work == built, "states that are there cost nothing"


def test_states_are_forgotten_before_they_fill_the_memory() -> None:
    pattern = TopicPattern("(.*a.{60})")
    for number in range(60):
        pattern.matches(varied_name(number))
        assert sum(1 + len(state.steps) for state in pattern._states.values()) <= MAX_KEPT_STEPS + MAX_STEPS


KINDS = ("orders", "payments", "refunds")

PIECES = st.recursive(
    st.sampled_from(["a", "b", "-", r"\.", ".", "[ab]", "[^a]", r"\d", "^", "$", r"\b", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        st.tuples(inner.map("(?:{})".format), st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map("".join),
    ),
    max_leaves=8,
)


@given(expression=PIECES, names=st.lists(st.text(alphabet="ab-.1", max_size=8), max_size=8))
def test_as_pythons_own_for_what_both_know(expression: str, names: list[str]) -> None:
    expected = re.compile(expression)
    pattern = TopicPattern(expression)
    assert matching(pattern, names) == frozenset(name for name in names if expected.fullmatch(name))


@given(expression=st.text(alphabet=string.printable, max_size=30))
def test_any_text_is_an_expression_or_refused(expression: str) -> None:
    with contextlib.suppress(InvalidRegularExpression):
        TopicPattern(expression).matches("orders-1")
