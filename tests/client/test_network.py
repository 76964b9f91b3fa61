from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.metadata import Node
from oncelog.client.network import MAX_THROTTLE_MS, NOT_SENT, SLOW_CONNECT_MS, bootstrap_nodes
from oncelog.client.network_events import Answered, Connect, Event, Lost, LostKind, Write
from oncelog.errors import UnsupportedVersion
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import RequestHeader, encode_response
from oncelog.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.client.network_scene import NODES, Scene


def tags(events: list[Event]) -> list[object]:
    return [event.tag for event in events]


def kinds(events: list[Event]) -> list[LostKind]:
    return [event.kind for event in events if isinstance(event, Lost)]


def produce(acks: int, size: int = 10) -> ProduceRequest:
    return ProduceRequest(None, acks, 5, [ProduceTopic("t", None, [ProducePartition(0, memoryview(bytes(size)))])])


# --- connecting -----------------------------------------------------------------------------------------------------


def test_a_node_is_ready_once_it_is_connected_and_its_versions_are_known() -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    assert scene.dialed == [Connect(0, "one", 9092)]
    scene.network.opened(0, scene.now_ms)
    assert not scene.is_ready(1)
    assert not scene.network.is_connected(1)
    scene.perform()
    scene.answer(0, {"api_keys": []})
    assert scene.is_ready(1)
    assert scene.network.is_connected(1)
    assert not scene.is_ready(2)
    assert not scene.is_ready(99)


def test_one_connection_is_enough() -> None:
    scene = Scene()
    for _ in range(3):
        scene.network.connect(1, scene.now_ms)
        scene.perform()
    scene.agree(0)
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    assert len(scene.dialed) == 1


def test_nobody_connects_to_a_node_that_is_not_there() -> None:
    scene = Scene()
    scene.network.connect(99, scene.now_ms)
    assert scene.network.take_effects() == []


def test_an_older_broker_is_asked_again() -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    scene.network.opened(0, scene.now_ms)
    scene.perform()
    header, _ = scene.questions[0].pop()
    refusal = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]}
    scene.feed(0, encode_response(header, codec.encode("ApiVersionsResponse", 0, refusal)))
    scene.perform()
    assert scene.questions[0][0][0].api_version == 2
    scene.answer(0, {"api_keys": [{"api_key": 3, "min_version": 0, "max_version": 5}]})
    assert scene.network.version_of(1, ApiKey.METADATA) == 5


def test_backoff_doubles_to_its_bound_and_begins_anew_after_a_connection_that_lasted() -> None:
    scene = Scene()
    assert scene.pause_before_dialing(1) == 0
    pauses = []
    for _ in range(8):
        scene.lose(scene.dialed[-1].link)
        pauses.append(scene.pause_before_dialing(1))
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000, 1000]
    scene.agree(scene.dialed[-1].link)
    scene.lose(scene.dialed[-1].link)
    assert scene.pause_before_dialing(1) == 1000, "one that agrees and breaks at once is no better"
    scene.agree(scene.dialed[-1].link)
    scene.now_ms += 1_000
    scene.lose(scene.dialed[-1].link)
    assert scene.pause_before_dialing(1) == 50


@pytest.mark.parametrize(("jitter", "pause_ms"), [(0.0, 40), (0.25, 45), (0.5, 50), (0.999999, 59)])
def test_backoff_has_a_fifth_of_jitter_either_way(jitter: float, pause_ms: int) -> None:
    scene = Scene(jitter=jitter)
    scene.lose(scene.connect(1))
    assert scene.wait_ms() == pause_ms
    scene.pass_time(pause_ms - 1)
    assert not scene.dials(1)
    scene.pass_time(1)
    assert scene.dials(1)


@given(st.integers(0, 100_000), st.integers(0, 100_000), st.integers(1, 40), st.floats(0, 0.999999))
def test_pauses_stay_within_their_bounds(first_ms: int, most_ms: int, failures: int, jitter: float) -> None:
    scene = Scene(reconnect_backoff_ms=first_ms, reconnect_backoff_max_ms=most_ms, jitter=jitter)
    scene.dials(1)
    for _ in range(failures):
        scene.lose(scene.dialed[-1].link)
        assert min(first_ms, most_ms) * 0.8 - 1 <= scene.pause_before_dialing(1) <= most_ms


def test_a_connection_that_does_not_come_about_is_given_up_with_growing_patience() -> None:
    scene = Scene()
    patience = []
    for _ in range(4):
        scene.network.connect(1, scene.now_ms)
        scene.perform()
        link = scene.dialed[-1].link
        began_ms = scene.now_ms
        while link not in scene.closed:
            scene.pass_time(scene.wait_ms())
        patience.append(scene.now_ms - began_ms)
        scene.pass_time(1_000)
    assert patience == [10_000, 20_000, 30_000, 30_000]
    assert scene.network.why_unreachable() == "one:9092: does not accept the connection"


def test_a_broker_that_keeps_its_versions_to_itself_is_given_up() -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    scene.network.opened(0, scene.now_ms)
    scene.pass_time(29_999)
    assert scene.closed == []
    scene.pass_time(1)
    assert scene.closed == [0]
    assert "which versions" in scene.network.why_unreachable()


def test_why_nodes_are_unreachable_is_forgotten_when_they_answer() -> None:
    scene = Scene()
    for node_id, reason in ((1, "Connection refused"), (2, "unknown host")):
        scene.network.connect(node_id, scene.now_ms)
        scene.perform()
        scene.lose(scene.dialed[-1].link, reason)
    assert scene.network.why_unreachable() == "one:9092: Connection refused; two:9092: unknown host"
    scene.pass_time(1_000)
    scene.connect(1)
    assert scene.network.why_unreachable() == "two:9092: unknown host"


def test_an_address_that_is_known_twice_is_named_once() -> None:
    scene = Scene([Node(-1, "one", 9092), Node(1, "one", 9092)])
    for node_id, reason in ((-1, "Connection refused"), (1, "no route to it")):
        scene.network.connect(node_id, scene.now_ms)
        scene.perform()
        scene.lose(scene.dialed[-1].link, reason)
    assert scene.network.why_unreachable() == "one:9092: no route to it"


def test_nodes_that_come_and_go_while_another_thread_asks_why_they_are_unreachable() -> None:
    """Naming a node runs Python code, in which threads take turns."""

    class Changing(Node):
        def __str__(self) -> str:
            scene.network.add_node(Node(next(numbers), "nine", 9092))
            return super().__str__()

    numbers = itertools.count(9)
    scene = Scene([Changing(1, "one", 9092), Node(2, "two", 9092)])
    for node_id in (1, 2):
        scene.network.connect(node_id, scene.now_ms)
        scene.perform()
        scene.lose(scene.dialed[-1].link, "unknown host")
    assert scene.network.why_unreachable() == "one:9092: unknown host; two:9092: unknown host"


def test_an_idle_connection_is_closed_without_backoff() -> None:
    scene = Scene(connections_max_idle_ms=5_000)
    link = scene.connect(1)
    scene.pass_time(3_000)
    scene.send(1, "a")
    scene.pass_time(4_000)
    scene.answer(link)
    scene.pass_time(4_999)
    assert scene.closed == []
    assert scene.wait_ms() == 1
    assert scene.pass_time(1) == []
    assert scene.closed == [link]
    assert scene.dials(1)


def test_a_connection_that_waits_for_an_answer_is_not_idle() -> None:
    scene = Scene(connections_max_idle_ms=1_000)
    link = scene.connect(1)
    scene.send(1, "a")
    assert scene.pass_time(20_000) == []
    scene.answer(link)
    assert scene.wait_ms() <= 1_000
    assert scene.closed == []


def test_idle_connections_may_stay_for_ever() -> None:
    scene = Scene(connections_max_idle_ms=-1)
    scene.connect(1)
    scene.pass_time(10**9)
    assert scene.is_ready(1)
    assert scene.network.next_deadline_ms(scene.now_ms) is None


# --- requests -------------------------------------------------------------------------------------------------------


def test_an_answer_comes_with_the_tag_and_the_moment_of_its_request() -> None:
    scene = Scene()
    link = scene.connect(1)
    sent_ms = scene.now_ms
    assert scene.send(1, "tag") == 12
    scene.pass_time(7)
    (event,) = scene.answer(link, {"cluster_id": "c"})
    assert isinstance(event, Answered)
    assert event[:4] == ("tag", 1, ApiKey.METADATA, 12)
    assert event.body["cluster_id"] == "c"
    assert event.sent_ms == sent_ms


def test_requests_of_one_pass_leave_as_one_write() -> None:
    scene = Scene()
    link = scene.connect(1)
    for tag in "ab":
        scene.network.send(1, ApiKey.METADATA, {"topics": None}, scene.now_ms, tag=tag)
    (effect,) = scene.network.take_effects()
    assert isinstance(effect, Write)
    assert effect.link == link
    assert scene.network.take_effects() == []


def test_the_records_of_a_request_are_not_copied() -> None:
    scene = Scene()
    scene.connect(1)
    records = memoryview(bytearray(5_000))
    request = ProduceRequest(None, -1, 5, [ProduceTopic("t", None, [ProducePartition(0, records)])])
    scene.network.send(1, ApiKey.PRODUCE, request, scene.now_ms, tag=None)
    (effect,) = scene.network.take_effects()
    assert isinstance(effect, Write)
    assert any(buffer is records for buffer in effect.buffers)


def test_requests_in_flight_are_bounded() -> None:
    scene = Scene(max_in_flight=2)
    link = scene.connect(1)
    scene.send(1, "a")
    assert scene.is_ready(1)
    scene.send(1, "b")
    assert not scene.is_ready(1)
    assert scene.network.in_flight(1) == 2
    assert scene.network.total_in_flight == 2
    scene.answer(link)
    assert scene.is_ready(1)
    assert scene.network.in_flight(1) == 1
    assert scene.network.in_flight(2) == scene.network.in_flight(99) == 0


def test_an_occupied_node_will_be_heard_of() -> None:
    scene = Scene(max_in_flight=1)
    assert not scene.network.is_occupied(1)
    link = scene.connect(1)
    assert not scene.network.is_occupied(1)
    scene.send(1, "a")
    assert scene.network.is_occupied(1)
    scene.answer(link)
    assert not scene.network.is_occupied(1)
    scene.network.pause_writing(link, scene.now_ms)
    assert scene.network.is_occupied(1)
    scene.network.resume_writing(link)
    scene.network.throttle(1, scene.now_ms + 100)
    assert not scene.is_ready(1)
    assert not scene.network.is_occupied(1)  # only the clock ends that
    scene.lose(link)
    assert not scene.network.is_occupied(1)
    assert not scene.network.is_occupied(99)


def test_a_version_can_be_capped() -> None:
    scene = Scene()
    scene.connect(1)
    assert scene.send(1, "a", max_version=7) == 7
    assert scene.network.version_of(1, ApiKey.METADATA, 5) == 5


def test_what_the_broker_does_not_speak_is_lost_without_harm() -> None:
    scene = Scene()
    scene.connect(1)
    with pytest.raises(UnsupportedVersion):
        scene.network.version_of(1, ApiKey.END_TXN)
    assert scene.network.send(1, ApiKey.END_TXN, {}, scene.now_ms, tag="x") == NOT_SENT
    assert scene.wait_ms() == 0
    (event,) = scene.pass_time(0)
    assert isinstance(event, Lost)
    assert (event.tag, event.node_id, event.kind) == ("x", 1, LostKind.UNSUPPORTED)
    assert "EndTxn" in event.reason
    assert scene.is_ready(1)
    assert scene.wait_ms() > 0


def test_features_of_a_broker() -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    scene.network.opened(0, scene.now_ms)
    scene.perform()
    feature = {"name": "transaction.version", "max_version_level": 2, "min_version_level": 1}
    scene.answer(0, {"finalized_features": [feature]})
    assert scene.network.features(1) == {"transaction.version": 2}


def test_a_late_answer_loses_every_request_of_its_connection_in_order_and_nothing_else() -> None:
    scene = Scene()
    link = scene.connect(1)
    other = scene.connect(2)
    scene.send(1, "a")
    scene.pass_time(1_000)
    scene.send(1, "b")
    scene.send(2, "c")
    assert scene.pass_time(28_999) == []
    assert scene.wait_ms() == 1
    events = scene.pass_time(1)
    assert tags(events) == ["a", "b"]
    assert kinds(events) == [LostKind.TIMEOUT] * 2
    assert [event.reason for event in events if isinstance(event, Lost)] == ["one:9092: no answer within 30000 ms"] * 2
    assert scene.closed == [link]
    assert not scene.network.is_connected(1)
    assert not scene.dials(1)
    assert tags(scene.answer(other)) == ["c"]


def test_a_request_may_have_a_timeout_of_its_own() -> None:
    scene = Scene()
    scene.connect(1)
    scene.send(1, "a")
    scene.send(1, "b", timeout_ms=10)
    scene.send(1, "c", timeout_ms=90_000)
    scene.pass_time(9)
    assert tags(scene.pass_time(1)) == ["a", "b", "c"]


def test_what_was_answered_is_not_waited_for() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    scene.pass_time(20_000)
    scene.send(1, "b")
    scene.answer(link)
    assert scene.pass_time(29_999) == []
    assert tags(scene.pass_time(1)) == ["b"]


def test_a_broken_connection_loses_its_requests_in_order() -> None:
    scene = Scene()
    link = scene.connect(1)
    for tag in "abc":
        scene.send(1, tag)
    scene.answer(link)
    events = scene.lose(link, "Connection reset by peer")
    assert events == [Lost(tag, 1, "one:9092: Connection reset by peer", LostKind.CONNECTION) for tag in "bc"]
    assert scene.network.total_in_flight == 0
    scene.perform()
    assert scene.closed == []  # the shell knows already


def test_what_the_shell_never_saw_was_never_sent() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    for tag in "bc":
        scene.network.send(1, ApiKey.METADATA, {"topics": None}, scene.now_ms, tag=tag)
    events = scene.lose(link)
    assert tags(events) == ["a", "b", "c"]
    assert kinds(events) == [LostKind.CONNECTION, LostKind.NEVER_SENT, LostKind.NEVER_SENT]
    assert scene.network.take_effects() == []


def test_a_throttled_node_is_left_alone() -> None:
    scene = Scene(connections_max_idle_ms=-1)
    scene.connect(1)
    scene.pass_time(SLOW_CONNECT_MS)
    scene.network.throttle(1, scene.now_ms + 500)
    scene.network.throttle(1, scene.now_ms + 200)  # an older answer does not shorten it
    scene.network.throttle(99, scene.now_ms + 500)
    assert scene.network.throttled_until(1) == scene.now_ms + 500
    assert scene.network.throttled_until(99) == 0
    assert not scene.is_ready(1)
    assert scene.wait_ms() == 500
    scene.pass_time(499)
    assert not scene.is_ready(1)
    scene.pass_time(1)
    assert scene.is_ready(1)


def test_nobody_is_silenced_for_weeks() -> None:
    scene = Scene(connections_max_idle_ms=-1)
    scene.connect(1)
    now_ms = scene.now_ms
    scene.network.throttle(1, now_ms + 2**31 - 1)
    assert now_ms + 1_000 < scene.network.throttled_until(1) <= now_ms + MAX_THROTTLE_MS


# --- what nobody answers, and brokers that take no more data ---------------------------------------------------------


def test_requests_without_an_answer_do_not_stay_in_flight() -> None:
    scene = Scene(max_in_flight=2)
    link = scene.connect(1)
    for number in range(2):
        assert scene.is_ready(1), number
        scene.network.send(1, ApiKey.PRODUCE, produce(acks=0), scene.now_ms, tag=number, answered=False)
    assert not scene.is_ready(1)  # as many at once as any others
    assert scene.wait_ms() > 0
    scene.perform()
    assert scene.is_ready(1)
    assert scene.wait_ms() == 0  # nothing else tells the core that there is room again
    scene.pass_time(0)
    assert scene.wait_ms() > 0
    assert scene.network.total_in_flight == 0
    assert scene.lose(link) == []


def test_a_broker_that_takes_no_more_data_gets_none() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    scene.network.pause_writing(link, scene.now_ms)
    assert not scene.is_ready(1)
    assert scene.network.is_connected(1)
    scene.network.resume_writing(link)
    assert scene.is_ready(1)


def test_a_broker_that_never_takes_more_data_is_given_up() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.network.send(1, ApiKey.PRODUCE, produce(acks=0), scene.now_ms, tag=None, answered=False)
    scene.perform()
    scene.network.pause_writing(link, scene.now_ms)
    scene.pass_time(29_000)
    scene.network.pause_writing(link, scene.now_ms)  # said twice is no new beginning
    scene.pass_time(999)
    assert scene.closed == []
    scene.pass_time(1)
    assert scene.closed == [link]
    assert scene.network.why_unreachable() == "one:9092: does not take more data"


def test_a_broker_that_took_the_data_in_time_is_kept() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.network.pause_writing(link, scene.now_ms)
    scene.network.resume_writing(link)
    scene.pass_time(40_000)
    assert scene.is_ready(1)


def test_what_nobody_answers_is_still_written_when_the_client_closes() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.connect(2)
    scene.send(1, "answered")
    scene.network.send(1, ApiKey.PRODUCE, produce(acks=0), scene.now_ms, tag=None, answered=False)
    assert tags(scene.network.close()) == ["answered"]
    assert scene.network.is_flushing
    scene.perform()
    assert [header.api_key for header, _ in scene.questions[link]] == [ApiKey.METADATA, ApiKey.PRODUCE]
    assert not scene.network.is_flushing
    assert scene.answer(link) == []  # it was lost: it does not end twice
    assert scene.network.close() == []


def test_a_client_that_closes_waits_for_a_broker_that_is_slow_to_take_its_data() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.network.send(1, ApiKey.PRODUCE, produce(acks=0), scene.now_ms, tag=None, answered=False)
    scene.perform()
    scene.network.pause_writing(link, scene.now_ms)
    scene.network.close()
    assert scene.network.is_flushing
    scene.network.resume_writing(link)
    assert not scene.network.is_flushing


def test_a_client_that_closes_does_not_wait_for_a_stalled_broker_for_ever() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.network.send(1, ApiKey.PRODUCE, produce(acks=0), scene.now_ms, tag=None, answered=False)
    scene.perform()
    scene.network.pause_writing(link, scene.now_ms)
    scene.network.close()
    scene.pass_time(30_000)
    assert not scene.network.is_flushing
    assert scene.closed == [link]


# --- the cluster changes --------------------------------------------------------------------------------------------


def test_bootstrap_servers_are_nodes_with_negative_ids() -> None:
    assert bootstrap_nodes([("a", 1), ("b", 2)]) == [Node(-1, "a", 1), Node(-2, "b", 2)]


def test_a_node_that_left_loses_its_requests() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    scene.network.send(1, ApiKey.METADATA, {"topics": None}, scene.now_ms, tag="b")
    scene.network.set_nodes(NODES[1:])
    assert scene.wait_ms() == 0
    events = scene.pass_time(0)
    assert tags(events) == ["a", "b"]
    assert kinds(events) == [LostKind.CONNECTION, LostKind.NEVER_SENT]
    assert "left the cluster" in str(events[0])
    assert scene.closed == [link]
    assert not scene.network.is_connected(1)
    assert scene.network.in_flight(1) == 0


def test_a_node_that_moved_is_connected_to_at_its_new_place_at_once() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    scene.lose(scene.connect(2))
    scene.network.set_nodes([Node(1, "elsewhere", 1), Node(2, "elsewhere", 2)])
    (event,) = scene.pass_time(0)
    assert isinstance(event, Lost)
    assert event.reason == "one:9092: moved to elsewhere:1"
    assert scene.closed == [link]
    for node_id in (1, 2):
        scene.network.connect(node_id, scene.now_ms)
    scene.perform()
    assert [(one.host, one.port) for one in scene.dialed[-2:]] == [("elsewhere", 1), ("elsewhere", 2)]


def test_nodes_that_stay_keep_their_connection_and_their_backoff() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.lose(scene.connect(2))
    scene.send(1, "a")
    scene.network.set_nodes([Node(1, "one", 9092, "another rack"), NODES[1]])
    assert scene.pass_time(0) == []
    assert not scene.dials(2)
    assert tags(scene.answer(link)) == ["a"]


def test_of_a_node_that_is_named_twice_the_last_word_counts() -> None:
    scene = Scene()
    link = scene.connect(1)
    scene.send(1, "a")
    scene.network.set_nodes([NODES[0], Node(1, "elsewhere", 1)])
    assert tags(scene.pass_time(0)) == ["a"]
    assert scene.closed == [link]


def test_the_connection_to_a_bootstrap_server_becomes_that_of_the_node_behind_it() -> None:
    scene = Scene(bootstrap_nodes([("one", 9092)]))
    link = scene.connect(-1)
    scene.send(-1, "a")
    scene.network.set_nodes(NODES)
    assert scene.is_ready(1)
    assert scene.network.in_flight(1) == 1
    (event,) = scene.answer(link)
    assert event[:2] == ("a", -1)  # the id that it was sent to
    scene.send(1, "b")
    assert scene.answer(link)[0][:2] == ("b", 1)
    assert scene.closed == []
    scene.lose(link)
    assert not scene.network.is_connected(1)
    assert scene.pause_before_dialing(1) == 50


def test_the_connection_to_another_bootstrap_server_ends_after_its_last_answer() -> None:
    scene = Scene(bootstrap_nodes([("balancer", 9092)]))
    link = scene.connect(-1)
    for tag in "ab":
        scene.send(-1, tag)
    scene.network.set_nodes(NODES)
    assert scene.pass_time(0) == []
    assert not scene.is_ready(-1)
    assert tags(scene.answer(link)) == ["a"]
    scene.perform()
    assert scene.closed == []
    assert tags(scene.answer(link)) == ["b"]
    scene.perform()
    assert scene.closed == [link]


def test_a_bootstrap_server_that_is_not_needed_any_more_is_left() -> None:
    scene = Scene(bootstrap_nodes([("balancer", 9092), ("other", 9092)]))
    link = scene.connect(-1)
    scene.network.connect(-2, scene.now_ms)
    scene.network.set_nodes(NODES)
    scene.perform()
    assert scene.closed == [link]
    assert len(scene.dialed) == 1  # the second was never begun


def test_the_last_answers_of_a_bootstrap_server_may_be_late_too() -> None:
    scene = Scene(bootstrap_nodes([("balancer", 9092)]))
    scene.connect(-1)
    scene.send(-1, "a")
    scene.network.set_nodes(NODES)
    assert tags(scene.pass_time(30_000)) == ["a"]


# --- any node -------------------------------------------------------------------------------------------------------


def test_the_least_loaded_node_is_asked() -> None:
    scene = Scene()
    for node in NODES:
        scene.connect(node.node_id)
    scene.send(1, "a")
    scene.send(1, "b")
    scene.send(3, "c")
    assert scene.network.least_loaded(scene.now_ms) == 2
    scene.network.throttle(2, scene.now_ms + 100)
    assert scene.network.least_loaded(scene.now_ms) == 3


def test_nodes_are_tried_in_turn_one_at_a_time() -> None:
    scene = Scene()
    hosts = []
    for _ in range(4):
        for _ in range(3):
            assert scene.network.least_loaded(scene.now_ms) is None
            scene.perform()
        hosts.append(scene.dialed[-1].host)
        scene.lose(scene.dialed[-1].link)
        scene.pass_time(60)
    assert hosts == ["one", "two", "three", "one"]
    assert len(scene.dialed) == 4


def test_a_node_that_is_slow_to_connect_does_not_keep_us_from_another() -> None:
    scene = Scene()
    scene.network.least_loaded(scene.now_ms)
    assert scene.wait_ms() == SLOW_CONNECT_MS
    scene.pass_time(SLOW_CONNECT_MS - 1)
    scene.network.least_loaded(scene.now_ms)
    scene.perform()
    assert len(scene.dialed) == 1
    scene.pass_time(1)
    scene.network.least_loaded(scene.now_ms)
    scene.perform()
    assert [one.host for one in scene.dialed] == ["one", "two"]
    scene.agree(scene.dialed[-1].link)
    assert scene.network.least_loaded(scene.now_ms) == 2


def test_while_all_are_in_backoff_nobody_is_tried() -> None:
    scene = Scene(NODES[:1])
    scene.lose(scene.connect(1))
    assert scene.network.least_loaded(scene.now_ms) is None
    scene.perform()
    assert len(scene.dialed) == 1
    scene.pass_time(scene.wait_ms())
    scene.network.least_loaded(scene.now_ms)
    scene.perform()
    assert len(scene.dialed) == 2


def test_no_nodes_at_all() -> None:
    scene = Scene([])
    assert scene.network.least_loaded(scene.now_ms) is None
    assert scene.network.next_deadline_ms(scene.now_ms) is None
    assert scene.network.tick(scene.now_ms) == []


# --- rubbish and old news -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rubbish",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        encode_response(RequestHeader(ApiKey.METADATA, 12, 99, None), codec.encode("MetadataResponse", 12, {})),
        encode_response(RequestHeader(ApiKey.METADATA, 12, 2, None), b"\x00\x00\x00"),
    ],
    ids=["http", "negative size", "another request's", "cut short"],
)
def test_rubbish_loses_the_connection_and_nothing_else(rubbish: bytes) -> None:
    scene = Scene()
    link, other = scene.connect(1), scene.connect(2)
    for tag in "abc":
        scene.send(1, tag)
    scene.send(2, "d")
    header, _ = scene.questions[link].pop(0)
    good = encode_response(header, codec.encode("MetadataResponse", 12, {}))
    first, *events = scene.feed(link, good + rubbish)
    assert isinstance(first, Answered)
    assert first.tag == "a"
    assert tags(events) == ["b", "c"]
    assert kinds(events) == [LostKind.RUBBISH] * 2
    assert "does not speak Kafka's protocol" in str(events[0])
    scene.perform()
    assert scene.closed == [link]
    assert not scene.dials(1)
    assert tags(scene.answer(other)) == ["d"]


def test_a_broker_that_refuses_to_name_its_versions_is_given_up() -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    scene.network.opened(0, scene.now_ms)
    scene.perform()
    assert scene.answer(0, {"error_code": 58}) == []
    scene.perform()
    assert scene.closed == [0]
    assert "one:9092" in scene.network.why_unreachable()


@given(st.binary(min_size=1, max_size=200), st.booleans(), st.booleans())
def test_no_bytes_raise(data: bytes, is_agreed: bool, is_framed: bool) -> None:
    scene = Scene()
    scene.network.connect(1, scene.now_ms)
    scene.perform()
    if is_agreed:
        scene.agree(0)
        for number in range(3):
            scene.send(1, number)
    else:
        scene.network.opened(0, scene.now_ms)
        scene.perform()
    if is_framed:
        data = encode_response(scene.questions[0][0][0], data)
    events = scene.feed(0, data) + scene.lose(0)
    assert tags(events) == ([0, 1, 2] if is_agreed else [])


def test_news_of_an_old_connection_is_ignored() -> None:
    scene = Scene()
    old = scene.connect(1)
    scene.send(1, "a")
    question = scene.questions[old][0][0]
    scene.lose(old)
    scene.pass_time(1_000)
    new = scene.connect(1)
    scene.send(1, "b")
    assert scene.lose(old) == []
    scene.network.opened(old, scene.now_ms)
    scene.network.pause_writing(old, scene.now_ms)
    scene.network.resume_writing(old)
    assert len(scene.network.get_buffer(old)) > 0
    assert scene.feed(old, encode_response(question, codec.encode("MetadataResponse", 12, {}))) == []
    assert scene.is_ready(1)
    assert scene.network.in_flight(1) == 1
    assert tags(scene.answer(new)) == ["b"]


# --- the end, and the count -----------------------------------------------------------------------------------------


def test_closing_ends_everything() -> None:
    scene = Scene()
    links = [scene.connect(1), scene.connect(2)]
    scene.network.connect(3, scene.now_ms)
    scene.perform()
    scene.send(2, "a")
    scene.send(1, "b")
    scene.network.send(1, ApiKey.END_TXN, {}, scene.now_ms, tag="unsupported")
    events = scene.network.close()
    assert sorted(tags(events)) == ["a", "b", "unsupported"]  # type: ignore[type-var]
    scene.perform()
    assert scene.closed == [*links, 2]
    scene.network.connect(1, scene.now_ms)
    assert scene.network.least_loaded(scene.now_ms) is None
    assert scene.network.take_effects() == []
    assert scene.network.close() == []


def test_what_is_counted() -> None:
    scene = Scene()
    link = scene.connect(1)
    received = scene.network.bytes_in
    scene.send(1, "a")
    assert scene.network.requests_sent == 1
    assert scene.network.bytes_out > 20
    scene.answer(link)
    assert scene.network.bytes_in > received
    scene.network.connect(2, scene.now_ms)
    scene.perform()
    scene.lose(scene.dialed[-1].link)  # was never made
    scene.lose(link)
    assert (scene.network.connections_made, scene.network.connections_lost) == (1, 1)
