"""The proxy with real sockets, between a raw client and brokers whose answers the test decides."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from oncelog.errors import InvalidConfig
from oncelog.faults import FaultProxy, ProxyFailed, Rule
from oncelog.faults.core import MAX_QUEUED_BYTES
from oncelog.wire import codec
from oncelog.wire.codec import Message
from oncelog.wire.frame import RequestHeader, encode_response
from tests.client.fake_broker import HANG_UP, FakeBroker
from tests.faults_tool.line import produce
from tests.support.raw import ConnectionClosedError, RawClient

TIMEOUT_S = 60.0
NO_TOPICS: Message = {"topics": []}
SEED = 7


def address(bootstrap_servers: str) -> tuple[str, int]:
    host, _, port = bootstrap_servers.rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def fake_cluster(size: int) -> Iterator[list[FakeBroker]]:
    """Brokers that all tell of each other, under the cluster's name and their own number."""
    brokers: list[FakeBroker] = []

    def answer_of(number: int) -> FakeBroker:
        def metadata(header: RequestHeader, body: Message) -> Message:
            nodes = [{"node_id": id, "host": each.host, "port": each.port} for id, each in enumerate(brokers)]
            return {"brokers": nodes, "cluster_id": f"told by {number}", "topics": []}

        return FakeBroker(metadata)

    with contextlib.ExitStack() as stack:
        for number in range(size):
            brokers.append(stack.enter_context(answer_of(number)))
        yield brokers


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with fake_cluster(1) as (only,):
        yield only


def connect(proxy: FaultProxy) -> RawClient:
    return RawClient(address(proxy.bootstrap_servers), TIMEOUT_S)


def ask(client: RawClient) -> Message:
    return client.request("metadata", 12, NO_TOPICS)


def test_clients_of_a_cluster_stay_behind_the_proxy() -> None:
    with fake_cluster(3) as brokers, FaultProxy(brokers[0].bootstrap, seed=SEED) as proxy:
        with connect(proxy) as client:
            nodes = [(node["host"], node["port"]) for node in ask(client)["brokers"]]
        assert nodes[0] == address(proxy.bootstrap_servers)
        assert len(set(nodes)) == 3
        assert not {port for _, port in nodes} & {each.port for each in brokers}
        for number, node in enumerate(nodes):
            with RawClient(node, TIMEOUT_S) as client:
                told = ask(client)
            assert told["cluster_id"] == f"told by {number}"
            assert [(each["host"], each["port"]) for each in told["brokers"]] == nodes
        assert proxy.report().connections == 4


def test_every_bootstrap_server_gets_a_port() -> None:
    with fake_cluster(2) as brokers, FaultProxy(",".join(each.bootstrap for each in brokers)) as proxy:
        servers = proxy.bootstrap_servers.split(",")
        assert len(set(servers)) == 2
        for number, server in enumerate(servers):
            with RawClient(address(server), TIMEOUT_S) as client:
                assert ask(client)["cluster_id"] == f"told by {number}"


def test_a_broker_that_advertises_the_proxy_is_left_alone() -> None:
    proxies: list[FaultProxy] = []

    def metadata(header: RequestHeader, body: Message) -> Message:
        host, port = address(proxies[0].bootstrap_servers)
        return {"brokers": [{"node_id": 1, "host": host, "port": port}], "topics": []}

    with FakeBroker(metadata) as broker, FaultProxy(broker.bootstrap) as proxy:
        proxies.append(proxy)
        with connect(proxy) as client:
            (node,) = ask(client)["brokers"]
        assert (node["host"], node["port"]) == address(proxy.bootstrap_servers)


def test_the_same_seed_does_the_same_again(fake: FakeBroker) -> None:
    rules = [Rule.drop_response("Metadata", probability=0.3, cut_after_ms=0)]

    def answers_per_connection(seed: int) -> list[int]:
        counts = []
        with FaultProxy(fake.bootstrap, rules, seed=seed) as proxy:
            for _ in range(6):
                with connect(proxy) as client:
                    count = 0
                    while answered(client):
                        count += 1
                    counts.append(count)
        return counts

    first = answers_per_connection(SEED)
    assert answers_per_connection(SEED) == first
    assert len(set(first)) > 1  # connections differ from each other
    assert answers_per_connection(SEED + 1) != first


def answered(client: RawClient) -> bool:
    try:
        ask(client)
    except (ConnectionClosedError, ConnectionError):
        return False
    return True


def test_a_dropped_answer_leaves_the_request_done(fake: FakeBroker) -> None:
    with FaultProxy(fake.bootstrap, [Rule.drop_response("Metadata", every=2)], seed=SEED) as proxy:
        with connect(proxy) as client:
            assert answered(client)
            assert not answered(client)
        assert len(fake.requests) == 2
        responses = proxy.report().responses["Metadata"]
        assert (responses.forwarded, responses.dropped) == (1, 1)


def test_the_whole_beginning_of_a_truncated_answer_arrives_even_if_the_client_is_slow() -> None:
    many = {"brokers": [], "topics": [{"name": f"{number:0200d}", "partitions": []} for number in range(20_000)]}
    rules = [Rule.truncate_response("Metadata", every=1)]
    with (
        FakeBroker(lambda header, body: many) as broker,
        FaultProxy(broker.bootstrap, rules, seed=SEED) as proxy,
        connect(proxy) as client,
    ):
        client.send("metadata", 12, NO_TOPICS)
        eventually(lambda: proxy.report().responses["Metadata"].truncated == 1)
        time.sleep(0.1)
        received = len(receive_until_closed(client))
    draws = random.Random(f"{SEED}/0/0/0")  # seed, node, connection, rule
    _time, share = draws.random(), draws.random()
    size = len(encode_response(RequestHeader(3, 12, 1, None), codec.encode("MetadataResponse", 12, many)))
    assert received == int(share * size)


def test_delays_take_their_time(fake: FakeBroker) -> None:
    with FaultProxy(fake.bootstrap, [Rule.delay(ms=60)]) as proxy, connect(proxy) as client:
        begun = time.monotonic()
        ask(client)
        assert time.monotonic() - begun > 0.055


def test_what_a_client_sent_before_it_closed_arrives_delayed_or_not(fake: FakeBroker) -> None:
    with FaultProxy(fake.bootstrap, [Rule.delay("Metadata", ms=50)]) as proxy:
        with connect(proxy) as client:
            client.send("metadata", 12, NO_TOPICS)
        eventually(lambda: len(fake.requests) == 1)


def test_a_broker_that_hangs_up_ends_the_clients_connection_after_its_answers() -> None:
    answers: list[object] = [{"brokers": [], "topics": []}, HANG_UP]
    with (
        FakeBroker(lambda header, body: answers.pop(0)) as broker,
        FaultProxy(broker.bootstrap, [Rule.delay(ms=50, on="response")]) as proxy,
        connect(proxy) as client,
    ):
        first = client.send("metadata", 12, NO_TOPICS)
        client.send("metadata", 12, NO_TOPICS)
        assert client.receive("metadata", 12, first)["brokers"] == []
        assert client.is_closed_by_peer()


def test_cut_breaks_every_connection_and_lets_new_ones_in(fake: FakeBroker) -> None:
    with FaultProxy(fake.bootstrap) as proxy:
        with connect(proxy) as first, connect(proxy) as second:
            ask(first)
            ask(second)
            assert proxy.cut() == 2
            assert first.is_closed_by_peer()
            assert second.is_closed_by_peer()
        assert proxy.cut() == 0
        with connect(proxy) as client:
            ask(client)


def test_after_heal_nothing_is_harmed(fake: FakeBroker) -> None:
    with FaultProxy(fake.bootstrap, [Rule.cut("Metadata")]) as proxy:
        with connect(proxy) as client:
            assert not answered(client)
        proxy.heal()
        with connect(proxy) as client:
            assert answered(client)


def test_clients_are_turned_away_while_no_broker_listens_and_let_in_once_one_does() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))  # taken, and nobody listens
        proxy = stack.enter_context(FaultProxy(f"127.0.0.1:{listener.getsockname()[1]}"))
        with connect(proxy) as client:
            assert client.is_closed_by_peer()
        listener.listen()
        with connect(proxy) as client:
            client.send_bytes(b"\x00\x00\x00\x0a\x04\xd2\x00\x00\x00\x00\x00\x01\xff\xff")
            upstream, _ = listener.accept()
            with upstream:
                upstream.settimeout(TIMEOUT_S)
                assert len(upstream.recv(100)) == 14


@pytest.mark.parametrize("rules", [[], [Rule.stall(ms=60_000)]], ids=["plain", "stalled"])
def test_a_flood_towards_a_broker_that_does_not_read_stays_in_the_clients_socket(rules: list[Rule]) -> None:
    frame = produce(1, bytes(1 << 20), acks=0)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        FaultProxy(f"127.0.0.1:{silent.getsockname()[1]}", rules) as proxy,
        connect(proxy) as client,
    ):
        client.socket.settimeout(0.5)
        sent = 0
        is_stuck = False
        while not is_stuck and sent < 8 * MAX_QUEUED_BYTES:
            try:
                sent += client.socket.send(frame)
            except TimeoutError:
                is_stuck = sent > 1 << 20
        assert sent < 4 * MAX_QUEUED_BYTES


def test_something_that_is_not_kafka_is_hung_up_on(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    with FaultProxy(fake.bootstrap) as proxy, connect(proxy) as client:
        client.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert client.is_closed_by_peer()
    assert "a request that the proxy cannot pass on" in caplog.text


def test_the_report_outlives_the_proxy_and_its_port_is_free_again(fake: FakeBroker) -> None:
    with FaultProxy(fake.bootstrap, seed=SEED) as proxy, connect(proxy) as client:
        ask(client)
        host, port = address(proxy.bootstrap_servers)
    assert proxy.report().requests["Metadata"].forwarded == 1
    assert str(proxy.report()).startswith("seed=7, 1 connections, rules: none")
    proxy.close()
    with FaultProxy(fake.bootstrap, host=host, port=port) as again, connect(again) as client:
        ask(client)


def test_a_failure_behind_the_proxy_names_the_seed_and_the_rules(fake: FakeBroker) -> None:
    proxy = FaultProxy(fake.bootstrap, [Rule.cut(every=200)], seed=SEED)
    with pytest.raises(AssertionError) as caught, proxy:
        raise AssertionError("records are missing")
    (note,) = caught.value.__notes__
    assert note == f"behind a fault proxy for {fake.bootstrap} with seed=7, rules: cut every=200"


def test_without_a_seed_one_is_chosen_and_named(fake: FakeBroker) -> None:
    first, second = FaultProxy(fake.bootstrap), FaultProxy(fake.bootstrap)
    assert first.seed != second.seed
    assert f"seed={first.seed}" in str(first)


def test_a_taken_port_is_an_error_that_names_it(fake: FakeBroker) -> None:
    with pytest.raises(ProxyFailed, match=rf"127\.0\.0\.1:{fake.port}.*in use.*seed=7"):
        FaultProxy("127.0.0.1:1", port=fake.port, seed=SEED).start()


def test_before_the_start_there_is_no_address() -> None:
    with pytest.raises(ProxyFailed, match="call start"):
        _ = FaultProxy("127.0.0.1:1").bootstrap_servers


def test_upstream_must_be_an_address() -> None:
    with pytest.raises(InvalidConfig, match="not the address of a broker"):
        FaultProxy("127.0.0.1:port")


def receive_until_closed(client: RawClient) -> bytes:
    received = bytearray()
    while chunk := client.socket.recv(1 << 16):
        received += chunk
    return bytes(received)


def eventually(holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
