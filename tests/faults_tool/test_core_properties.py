"""What holds for the link whatever passes through it, in whatever pieces, under whatever rules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from oncelog.faults.rewrite import Address
from oncelog.faults.rules import Direction, Fault, Rule
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import encode_request
from tests.faults_tool.line import (
    REQUEST,
    RESPONSE,
    Line,
    answer,
    correlation_id_of_answer,
    correlation_id_of_request,
    metadata_answer,
    produce,
    request,
    split_frames,
)

NODES = [Address("a", 1), Address("b", 2)]
PATIENCE_MS = 10_000


@dataclass(frozen=True)
class Exchange:
    """A request and what a broker answers to it, if anything."""

    asked: bytes
    answered: bytes | None


def exchange(correlation_id: int, kind: str, payload: bytes) -> Exchange:
    match kind:
        case "produce":
            return Exchange(produce(correlation_id, payload), answer(correlation_id, b"\x00" + payload))
        case "silent":
            return Exchange(produce(correlation_id, payload, acks=0), None)
        case "metadata":
            asked = encode_request(ApiKey.METADATA, 12, correlation_id, "me", payload)
            return Exchange(asked, metadata_answer(correlation_id, NODES))
        case _:
            return Exchange(request(correlation_id, 1_234, body=payload), answer(correlation_id, payload))


exchanges = st.lists(
    st.tuples(st.sampled_from(["produce", "silent", "metadata", "unknown"]), st.binary(max_size=40)), max_size=12
).map(lambda drafts: [exchange(number, *draft) for number, draft in enumerate(drafts)])

probabilities = st.sampled_from([0.1, 0.5, 1.0])
times = st.tuples(st.integers(0, 20), st.integers(20, 40))
rules = st.lists(
    st.one_of(
        st.builds(lambda p, ms: Rule.drop_request(probability=p, cut_after_ms=ms), probabilities, times),
        st.builds(lambda p, ms: Rule.drop_response(probability=p, cut_after_ms=ms), probabilities, times),
        st.builds(lambda p, ms: Rule.delay(probability=p, ms=ms), probabilities, times),
        st.builds(lambda p, ms: Rule.delay(probability=p, ms=ms, on="response"), probabilities, times),
        st.builds(lambda p: Rule.duplicate_request(probability=p), probabilities),
        st.builds(lambda p: Rule.duplicate_response(probability=p), probabilities),
        st.builds(lambda p, ms: Rule.reorder_requests(probability=p, within_ms=ms), probabilities, times),
        st.builds(lambda p, ms: Rule.reorder_responses(probability=p, within_ms=ms), probabilities, times),
        st.builds(lambda p: Rule.truncate_request(probability=p), probabilities),
        st.builds(lambda p: Rule.truncate_response(probability=p), probabilities),
        st.builds(lambda p: Rule.cut(probability=p), probabilities),
        st.builds(lambda p, ms: Rule.stall(probability=p, ms=ms), probabilities, times),
    ),
    max_size=4,
)


@dataclass
class Conversation:
    """A client that sends its requests in pieces, and a broker that answers what it gets, at its leisure."""

    exchanges: list[Exchange]
    line: Line
    to_send: bytes = b""
    heard: int = 0
    to_answer: bytes = b""
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.to_send = b"".join(each.asked for each in self.exchanges)

    def step(self, moves: random.Random) -> None:
        """A piece of the requests, or of the answers, or a while of nothing."""
        match moves.choice(["ask", "reply", "wait"]):
            case "ask":
                size = moves.randint(1, 60)
                self.line.send(REQUEST, self.to_send[:size], step=moves.randint(1, 30))
                self.to_send = self.to_send[size:]
            case "reply":
                self._listen()
                size = moves.randint(1, 60)
                self.line.send(RESPONSE, self.to_answer[:size], step=moves.randint(1, 30))
                self.to_answer = self.to_answer[size:]
            case _:
                self.line.wait(moves.randint(0, 30))

    def finish(self) -> None:
        self.line.send(REQUEST, self.to_send)
        for _ in range(len(self.exchanges) + 1):
            self.line.wait(PATIENCE_MS)
            self._listen()
            self.line.send(RESPONSE, self.to_answer)
            self.to_answer = b""
        self.line.wait(PATIENCE_MS)

    def _listen(self) -> None:
        frames, _ = split_frames(self.line.out[REQUEST])
        for frame in frames[self.heard :]:
            answered = self.exchanges[correlation_id_of_request(frame)].answered
            if answered is not None:
                self.to_answer += answered
                self.sent.append(answered)
        self.heard = len(frames)


def converse(exchanges: list[Exchange], given_rules: list[Rule], seed: int) -> Conversation:
    draws = [random.Random(f"{seed}/{index}").random for index in range(len(given_rules))]
    conversation = Conversation(exchanges, Line(given_rules, draws))
    moves = random.Random(seed)
    for _ in range(moves.randint(0, 40)):
        conversation.step(moves)
    conversation.finish()
    return conversation


def faults(given_rules: list[Rule], direction: Direction) -> set[Fault]:
    return {rule.fault for rule in given_rules if rule.direction is direction}


@given(exchanges, st.integers())
def test_without_rules_the_proxy_is_transparent(exchanges: list[Exchange], seed: int) -> None:
    line = converse(exchanges, [], seed).line
    assert line.cut is None
    assert line.out[REQUEST] == b"".join(each.asked for each in exchanges)
    assert line.out[RESPONSE] == b"".join(each.answered for each in exchanges if each.answered is not None)
    assert line.link.wake_at_ms is None


@given(exchanges, rules, st.integers())
def test_frames_are_whole_unless_a_rule_truncates_them(
    exchanges: list[Exchange], given_rules: list[Rule], seed: int
) -> None:
    line = converse(exchanges, given_rules, seed).line
    known = {
        REQUEST: {each.asked for each in exchanges},
        RESPONSE: {each.answered for each in exchanges if each.answered is not None},
    }
    for direction in Direction:
        frames, rest = split_frames(line.out[direction])
        assert set(frames) <= known[direction]
        if rest:
            assert Fault.TRUNCATE in faults(given_rules, direction)
            assert any(frame.startswith(rest) for frame in known[direction])
            assert line.cut is not None


@given(exchanges, rules, st.integers())
def test_order_and_number_change_only_where_a_rule_says_so(
    exchanges: list[Exchange], given_rules: list[Rule], seed: int
) -> None:
    conversation = converse(exchanges, given_rules, seed)
    line = conversation.line
    streams = {
        REQUEST: [correlation_id_of_request(frame) for frame in split_frames(line.out[REQUEST])[0]],
        RESPONSE: [correlation_id_of_answer(frame) for frame in split_frames(line.out[RESPONSE])[0]],
    }
    for direction, numbers in streams.items():
        allowed = faults(given_rules, direction)
        if Fault.REORDER not in allowed:
            assert numbers == sorted(numbers)
        elif Fault.DUPLICATE not in allowed:
            assert all(place <= number + 1 and number <= place + 1 for place, number in enumerate(_ranks(numbers)))
        assert max(Counter(numbers).values(), default=0) <= (2 if Fault.DUPLICATE in allowed else 1)


def _ranks(numbers: list[int]) -> list[int]:
    """The place each number would have in order; neighbours that were swapped are off by one."""
    order = {number: rank for rank, number in enumerate(sorted(numbers))}
    return [order[number] for number in numbers]


@given(exchanges, rules, st.integers())
def test_nothing_is_lost_unless_the_connection_is_cut(
    exchanges: list[Exchange], given_rules: list[Rule], seed: int
) -> None:
    line = converse(exchanges, given_rules, seed).line
    lossy = {Fault.DROP, Fault.TRUNCATE, Fault.CUT}
    if not lossy & (faults(given_rules, REQUEST) | faults(given_rules, RESPONSE)):
        assert line.cut is None
    if line.cut is None:
        assert set(line.asked) == set(range(len(exchanges)))
        assert set(line.answered) == {number for number, each in enumerate(exchanges) if each.answered is not None}


@given(exchanges, rules, st.integers(), st.integers(1, 50), st.integers(1, 50))
def test_the_same_seed_does_the_same_however_the_bytes_arrive(
    exchanges: list[Exchange], given_rules: list[Rule], seed: int, one_step: int, other_step: int
) -> None:
    def run(step: int) -> tuple[dict[Direction, bytes], object]:
        draws = [random.Random(f"{seed}/{index}").random for index in range(len(given_rules))]
        line = Line(given_rules, draws)
        for each in exchanges:
            if line.cut is None:
                line.send(REQUEST, each.asked, step=step)
                line.wait(PATIENCE_MS)
        return line.out, line.report.to_dict()

    assert run(one_step) == run(other_step)
