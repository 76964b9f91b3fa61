"""The link alone: what leaves it, in which order and at which time."""

from __future__ import annotations

import pytest

from oncelog.errors import NotCoordinator
from oncelog.faults import core
from oncelog.faults.core import BROKEN_BY_RULE, MAX_IN_FLIGHT, MAX_QUEUED_BYTES, MAX_QUEUED_FRAMES, Cut
from oncelog.faults.frames import with_size
from oncelog.faults.rewrite import Address
from oncelog.faults.rules import Rule
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import decode_response_header, encode_request
from tests.faults_tool.line import (
    REQUEST,
    RESPONSE,
    Line,
    always,
    answer,
    metadata_answer,
    produce,
    request,
    split_frames,
)

CUT = Cut(BROKEN_BY_RULE)
CUT_AT_THE_END = Cut(BROKEN_BY_RULE, flush=True)


class TestWithoutRules:
    def test_requests_and_answers_pass_as_they_are(self) -> None:
        line = Line()
        line.ask(produce(1), request(2))
        line.reply(answer(1), answer(2))
        assert line.out == {REQUEST: produce(1) + request(2), RESPONSE: answer(1) + answer(2)}
        assert line.cut is None
        assert line.link.wake_at_ms is None

    def test_an_empty_answer_body_and_split_reads_pass(self) -> None:
        line = Line()
        line.send(REQUEST, request(1, body=b""), produce(2), step=1)
        line.send(RESPONSE, answer(1, b""), answer(2), step=3)
        assert line.out[REQUEST] == request(1, body=b"") + produce(2)
        assert line.out[RESPONSE] == answer(1, b"") + answer(2)

    def test_a_request_without_acks_is_not_waited_for(self) -> None:
        line = Line()
        line.ask(produce(1, acks=0), produce(2))
        line.reply(answer(2))
        assert line.answered == [2]

    def test_each_side_hears_of_the_others_end(self) -> None:
        line = Line()
        line.ask(produce(1))
        line.end(REQUEST)
        assert line.ended == [REQUEST]
        line.reply(answer(1))
        line.end(RESPONSE)
        assert line.ended == [REQUEST, RESPONSE]
        assert line.answered == [1]

    def test_addresses_are_replaced(self) -> None:
        nodes = [Address("a", 1), Address("b", 2)]
        local = {Address("a", 1): Address("here", 11), Address("b", 2): Address("here", 12)}
        line = Line(advertise=local.__getitem__)
        line.ask(encode_request(ApiKey.METADATA, 12, 5, "me", b""))
        line.reply(metadata_answer(5, nodes))
        assert line.out[RESPONSE] == metadata_answer(5, list(local.values()))

    def test_the_counters_know_every_frame(self) -> None:
        line = Line()
        line.ask(produce(1), request(2, 1_234), produce(3))
        line.reply(answer(1))
        report = line.report
        assert {api: counts.forwarded for api, counts in report.requests.items()} == {"Produce": 2, "Api1234": 1}
        assert {api: counts.forwarded for api, counts in report.responses.items()} == {"Produce": 1}
        assert "Produce requests: 2 forwarded" in str(report)
        assert report.requests["Fetch"].forwarded == 0
        assert report.to_dict()["responses"]["Produce"]["forwarded"] == 1


class TestRefusals:
    ERROR = NotCoordinator

    def end(self, correlation_id: int) -> bytes:
        body = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "committed": True}
        return encode_request(ApiKey.END_TXN, 5, correlation_id, "test", codec.encode("EndTxnRequest", 5, body))

    def test_the_broker_never_sees_a_refused_request_and_the_client_is_told(self) -> None:
        line = Line([Rule.refuse_request("EndTxn", error=self.ERROR.name, limit=1)])
        line.ask(self.end(1))
        assert line.out[REQUEST] == b""
        _, position = decode_response_header(ApiKey.END_TXN, 5, memoryview(line.out[RESPONSE])[4:])
        told = codec.decode_exactly("EndTxnResponse", 5, line.out[RESPONSE][4:], position)
        assert told["error_code"] == self.ERROR.code
        assert line.report.requests["EndTxn"].refused == 1
        line.ask(self.end(2))
        assert line.asked == [2]

    def test_a_refusal_waits_for_the_answers_before_it(self) -> None:
        line = Line([Rule.refuse_request("EndTxn", error=self.ERROR.name)])
        line.ask(request(1), self.end(2), request(3))
        assert line.asked == [1, 3]
        assert line.answered == []
        line.reply(answer(1))
        assert line.answered == [1, 2]
        line.reply(answer(3))
        assert line.answered == [1, 2, 3]

    def test_what_expects_no_answer_is_gone(self) -> None:
        line = Line([Rule.refuse_request("Produce", error=self.ERROR.name)])
        line.ask(produce(1, acks=0))
        assert line.out == {REQUEST: b"", RESPONSE: b""}
        assert line.cut is None

    def test_a_request_that_cannot_be_read_breaks_the_connection(self) -> None:
        line = Line([Rule.refuse_request("Produce", error=self.ERROR.name)])
        line.ask(produce(1, b"no records"))
        assert line.cut is not None
        assert "a request that the proxy cannot pass on" in line.cut.reason


class TestUnreadable:
    @pytest.mark.parametrize(
        ("frame", "complaint"),
        [
            (b"\x16\x03\x01\x02\x00 a TLS greeting", "limit"),
            (b"\xff\xff\xff\xff", "-1 bytes"),
            (with_size(b"short"), "no header"),
            (request(1, ApiKey.SASL_HANDSHAKE, 0), "SaslHandshake v1"),
        ],
    )
    def test_requests_that_are_none_break_the_connection_with_a_reason(self, frame: bytes, complaint: str) -> None:
        line = Line()
        line.ask(request(1), frame)
        assert line.asked == [1]
        assert line.cut is not None
        assert line.cut.reason.startswith("a request that the proxy cannot pass on: ")
        assert complaint in line.cut.reason

    def test_an_answer_that_nobody_waits_for_breaks_the_connection(self) -> None:
        line = Line()
        line.ask(request(1), request(2))
        line.reply(answer(1), answer(3))
        assert line.answered == [1]
        assert line.cut is not None
        assert "correlation id 3" in line.cut.reason
        unasked = Line()
        unasked.reply(answer(1))
        assert unasked.cut is not None

    def test_metadata_from_the_future_is_not_passed_on_unread(self) -> None:
        line = Line()
        line.ask(request(1, ApiKey.METADATA, 99))
        line.reply(answer(1, b"\x00 whatever"))
        assert line.answered == []
        assert line.cut is not None
        assert "MetadataResponse exists in versions" in line.cut.reason

    def test_after_a_cut_nothing_happens_any_more(self) -> None:
        line = Line([Rule.cut(every=2), Rule.delay(ms=50)])
        line.ask(request(1), request(2))
        assert line.cut == CUT
        assert line.link.wake_at_ms is None
        assert not line.link.wants(REQUEST)
        assert not line.link.wants(RESPONSE)
        assert line.link.tick(line.now_ms + 1_000) == []
        assert line.link.ended(RESPONSE, line.now_ms) == []
        assert line.link.received(REQUEST, 0, line.now_ms) == []


class TestDrop:
    def test_behind_a_dropped_answer_no_answer_passes_but_requests_do_until_the_cut(self) -> None:
        line = Line([Rule.drop_response("Produce", every=2, cut_after_ms=20)])
        line.ask(produce(1), produce(2), produce(3))
        line.reply(answer(1), answer(2), answer(3))
        line.ask(produce(4))
        line.wait(19)
        assert (line.asked, line.answered, line.cut) == ([1, 2, 3, 4], [1], None)
        line.wait(1)
        assert line.cut == CUT_AT_THE_END
        responses = line.report.responses["Produce"]
        assert (responses.forwarded, responses.dropped, responses.swallowed) == (1, 1, 1)

    def test_behind_a_dropped_request_no_request_passes_but_answers_do_until_the_cut(self) -> None:
        line = Line([Rule.drop_request("Produce", every=2, cut_after_ms=20)])
        line.ask(produce(1), produce(2), request(3))
        line.reply(answer(1))
        assert (line.asked, line.answered, line.cut) == ([1], [1], None)
        line.wait(20)
        assert line.cut == CUT_AT_THE_END
        assert line.report.requests["Produce"].dropped == 1
        assert line.report.requests["Heartbeat"].swallowed == 1

    def test_at_once_means_in_the_same_moment(self) -> None:
        line = Line([Rule.drop_response(cut_after_ms=0)])
        line.ask(produce(1))
        line.reply(answer(1))
        assert (line.answered, line.cut) == ([], CUT_AT_THE_END)

    def test_the_time_to_the_cut_begins_when_the_frame_would_have_left(self) -> None:
        line = Line([Rule.delay(ms=100), Rule.drop_request(every=2, cut_after_ms=20)])
        line.ask(produce(1), produce(2))
        line.wait(100)
        assert (line.asked, line.cut) == ([1], None)
        line.wait(20)
        assert line.cut == CUT_AT_THE_END

    @pytest.mark.parametrize(("first_ms", "second_ms"), [(50, 10), (10, 50)])
    def test_the_earlier_of_two_cuts_counts(self, first_ms: int, second_ms: int) -> None:
        line = Line([Rule.drop_request(every=2, cut_after_ms=first_ms), Rule.drop_response(cut_after_ms=second_ms)])
        line.ask(produce(1), produce(2))
        line.reply(answer(1))
        line.wait(10)
        assert line.cut == CUT_AT_THE_END


class TestDelay:
    def test_a_frame_waits_its_time(self) -> None:
        line = Line([Rule.delay("Produce", ms=30)])
        line.ask(produce(1))
        assert line.link.wake_at_ms == line.now_ms + 30
        line.wait(29)
        assert line.asked == []
        line.wait(1)
        assert line.asked == [1]
        assert line.report.requests["Produce"].delayed == 1

    def test_what_is_behind_it_waits_as_well_and_no_longer(self) -> None:
        line = Line([Rule.delay("Produce", ms=30)])
        line.ask(produce(1), request(2))
        line.wait(20)
        line.ask(request(3))
        assert line.asked == []
        line.wait(10)
        assert line.asked == [1, 2, 3]
        assert line.total.delayed == 1

    def test_delays_of_neighbours_run_side_by_side(self) -> None:
        line = Line([Rule.delay(ms=30)])
        line.ask(request(1), request(2))
        line.wait(30)
        assert line.asked == [1, 2]

    def test_the_other_direction_is_not_delayed(self) -> None:
        line = Line([Rule.delay(ms=30, on="response")])
        line.ask(request(1))
        assert line.asked == [1]
        line.reply(answer(1))
        assert line.answered == []
        line.ask(request(2))
        assert line.asked == [1, 2]
        line.wait(30)
        assert line.answered == [1]

    def test_the_end_of_a_side_does_not_overtake_its_frames(self) -> None:
        line = Line([Rule.delay(ms=30)])
        line.ask(produce(1, acks=0))
        line.end(REQUEST)
        assert (line.asked, line.ended) == ([], [])
        line.wait(30)
        assert (line.asked, line.ended) == ([1], [REQUEST])


class TestDuplicate:
    def test_the_broker_gets_a_request_twice_and_the_client_one_answer(self) -> None:
        line = Line([Rule.duplicate_request("Produce", every=2)])
        line.ask(produce(1), produce(2), produce(3))
        assert line.out[REQUEST] == produce(1) + produce(2) + produce(2) + produce(3)
        line.reply(answer(1), answer(2, b"first"), answer(2, b"second"), answer(3))
        assert line.out[RESPONSE] == answer(1) + answer(2, b"first") + answer(3)
        assert line.cut is None
        assert line.report.requests["Produce"].duplicated == 1

    def test_the_first_answer_is_the_one_that_counts_also_if_it_has_to_wait(self) -> None:
        line = Line([Rule.reorder_requests("Heartbeat"), Rule.duplicate_request("Produce")])
        line.ask(request(1), produce(2))
        assert line.asked == [2, 2, 1]
        line.reply(answer(2, b"first"), answer(2, b"second"), answer(1))
        assert line.out[RESPONSE] == answer(1) + answer(2, b"first")

    def test_without_acks_no_answer_is_expected_for_either(self) -> None:
        line = Line([Rule.duplicate_request("Produce", every=1)])
        line.ask(produce(1, acks=0), request(2))
        line.reply(answer(2))
        assert (line.asked, line.answered) == ([1, 1, 2], [2])

    def test_an_answer_twice(self) -> None:
        line = Line([Rule.duplicate_response(every=2)])
        line.ask(request(1), request(2), request(3))
        line.reply(answer(1), answer(2), answer(3))
        assert line.answered == [1, 2, 2, 3]
        assert line.report.responses["Heartbeat"].duplicated == 1


class TestReorder:
    def test_the_next_request_overtakes_and_the_answers_come_in_the_clients_order(self) -> None:
        line = Line([Rule.reorder_requests("Produce", limit=1)])
        line.ask(produce(1))
        assert line.asked == []
        line.ask(produce(2), produce(3))
        assert line.asked == [2, 1, 3]
        line.reply(answer(2))
        assert line.answered == []
        line.reply(answer(1), answer(3))
        assert line.answered == [1, 2, 3]
        assert line.report.requests["Produce"].reordered == 1

    def test_pairs_are_swapped_if_every_request_is_hit(self) -> None:
        line = Line([Rule.reorder_requests()])
        line.ask(*(request(number) for number in range(1, 5)))
        assert line.asked == [2, 1, 4, 3]

    def test_if_nothing_comes_to_overtake_it_passes_late(self) -> None:
        line = Line([Rule.reorder_requests("Produce", within_ms=50)])
        line.ask(produce(1))
        line.wait(49)
        assert line.asked == []
        line.wait(1)
        assert line.asked == [1]
        assert line.total.reordered == 0
        line.reply(answer(1))
        assert line.answered == [1]

    def test_a_client_that_closes_does_not_lose_what_waits(self) -> None:
        line = Line([Rule.reorder_requests()])
        line.ask(produce(1, acks=0))
        line.end(REQUEST)
        assert (line.asked, line.ended) == ([1], [REQUEST])

    def test_what_waits_behind_a_dropped_frame_is_lost_with_it(self) -> None:
        line = Line([Rule.drop_request("Produce"), Rule.reorder_requests("Heartbeat")])
        line.ask(request(1), produce(2))
        line.wait(1_000)
        assert line.asked == []
        assert line.report.requests["Heartbeat"].swallowed == 1

    def test_answers_swapped(self) -> None:
        line = Line([Rule.reorder_responses(every=2)])
        line.ask(request(1), request(2), request(3))
        line.reply(answer(1), answer(2), answer(3))
        assert line.answered == [1, 3, 2]
        assert line.report.responses["Heartbeat"].reordered == 1


class TestTruncate:
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.999])
    def test_the_beginning_passes_and_then_the_connection_ends(self, share: float) -> None:
        line = Line([Rule.truncate_request("Produce", every=2)], [always(share)])
        line.ask(produce(1), produce(2), produce(3))
        frames, rest = split_frames(line.out[REQUEST])
        assert frames == [produce(1)]
        assert rest
        assert produce(2).startswith(rest)
        assert len(rest) < len(produce(2))
        assert line.cut == CUT_AT_THE_END
        requests = line.report.requests["Produce"]
        assert (requests.forwarded, requests.truncated) == (1, 1)

    def test_answers_too(self) -> None:
        line = Line([Rule.truncate_response()], [always(0.5)])
        line.ask(request(1))
        line.reply(answer(1, b"0123456789"))
        assert line.out[RESPONSE] == answer(1, b"0123456789")[:9]
        assert line.cut == CUT_AT_THE_END

    def test_even_the_shortest_frame(self) -> None:
        line = Line([Rule.truncate_response()], [always(0.999)])
        line.ask(request(1))
        line.reply(answer(1, b""))
        assert line.out[RESPONSE] == answer(1, b"")[:-1]


class TestCut:
    def test_the_frame_and_all_that_is_under_way_is_lost(self) -> None:
        line = Line([Rule.delay("Produce", ms=10, on="response"), Rule.cut("Heartbeat")])
        line.ask(produce(1))
        line.reply(answer(1))
        line.ask(request(2), request(3))
        assert (line.asked, line.answered, line.cut) == ([1], [], CUT)
        assert line.report.requests["Heartbeat"].cut == 1

    def test_on_an_answer(self) -> None:
        line = Line([Rule.cut("Produce", on="response")])
        line.ask(produce(1), produce(2))
        line.reply(answer(1), answer(2))
        assert (line.asked, line.answered, line.cut) == ([1, 2], [], CUT)
        assert line.report.responses["Produce"].cut == 1

    def test_answers_that_are_free_to_go_at_once_are_cut_once(self) -> None:
        line = Line([Rule.reorder_requests(limit=1), Rule.cut(on="response")])
        line.ask(produce(1), produce(2))
        line.reply(answer(2), answer(1))
        assert (line.answered, line.cut) == ([], CUT)
        assert line.total.cut == 1


class TestStall:
    def test_nothing_passes_either_way_and_then_everything_does(self) -> None:
        line = Line([Rule.stall("Produce", ms=500)])
        line.ask(request(1), produce(2))
        line.reply(answer(1))
        line.ask(request(3))
        line.wait(499)
        assert (line.asked, line.answered, line.cut) == ([1], [], None)
        assert line.link.wants(REQUEST)  # reading goes on, so that a client that gives up is noticed
        line.wait(1)
        assert (line.asked, line.answered) == ([1, 2, 3], [1])
        assert line.report.requests["Produce"].stalled == 1

    def test_a_shorter_stall_does_not_end_a_longer_one(self) -> None:
        line = Line([Rule.stall("Produce", ms=500), Rule.stall("Heartbeat", ms=100)])
        line.ask(produce(1), request(2))
        line.wait(499)
        assert line.asked == []
        line.wait(1)
        assert line.asked == [1, 2]


class TestBounds:
    def test_a_direction_that_holds_back_enough_bytes_is_no_longer_read(self) -> None:
        line = Line([Rule.delay(ms=100)], max_frame_bytes=2 * MAX_QUEUED_BYTES)
        line.ask(request(1, body=bytes(MAX_QUEUED_BYTES - 100)))
        assert line.link.wants(REQUEST)
        line.ask(request(2, body=bytes(100)))
        assert not line.link.wants(REQUEST)
        assert line.link.wants(RESPONSE)
        line.wait(100)
        assert line.link.wants(REQUEST)

    def test_a_direction_that_holds_back_enough_frames_is_no_longer_read(self) -> None:
        line = Line([Rule.delay(ms=100)])
        line.ask(*(produce(number, acks=0) for number in range(MAX_QUEUED_FRAMES - 1)))
        assert line.link.wants(REQUEST)
        line.ask(produce(0, acks=0))
        assert not line.link.wants(REQUEST)
        line.wait(100)
        assert line.link.wants(REQUEST)

    def test_a_client_that_waits_for_too_many_answers_is_no_longer_read(self) -> None:
        line = Line()
        line.ask(*(request(number) for number in range(MAX_IN_FLIGHT)))
        assert not line.link.wants(REQUEST)
        line.reply(answer(0))
        assert line.link.wants(REQUEST)

    def test_frames_beyond_the_limit_are_refused(self) -> None:
        line = Line(max_frame_bytes=100)
        line.ask(request(1, body=bytes(91)))
        assert line.cut is not None

    def test_what_is_swallowed_takes_no_memory(self) -> None:
        line = Line([Rule.drop_request(cut_after_ms=10_000, limit=1)])
        line.ask(*(request(number) for number in range(3 * core.MAX_IN_FLIGHT)))
        assert line.total.swallowed == 3 * MAX_IN_FLIGHT - 1
        assert line.link.wants(REQUEST)


def test_heal_lets_what_follows_pass() -> None:
    line = Line([Rule.delay(ms=50), Rule.duplicate_request()])
    line.ask(request(1))
    line.script.heal()
    line.ask(request(2))
    line.wait(50)
    assert line.asked == [1, 1, 2]
