"""Client quotas: how they are set, described and refused, and what a client notices that is above one."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, ThrottleEvent, TopicPartition

from oncelog.admin import ANY_NAME, Admin
from tests.support.batches import make_batch
from tests.support.compare import Ask, assert_equal, run
from tests.support.confluent import create_topic, make_producer, read, send
from tests.support.kafka import run_tool
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient, encode_request
from tests.support.requests import create_topic as create_raw
from tests.support.requests import fetch_request, produce_request

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]
Entity = dict[str, str | None]

INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35
EXACT, DEFAULT, ANY = range(3)
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CONFIG_TOOL = "kafka.admin.ConfigCommand"
FULL_SAMPLES_S = 2
"""What both brokers let a client use at once after silence, in seconds of its quota: `quota.window.num` is 3."""
DEADLINE_S = 60.0


# --- setting and describing ---


def unique(name: str = "client") -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def entry(entity: Sequence[tuple[str, str | None]], ops: Sequence[tuple[str, float | None]]) -> Message:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def alter(*entries: Message, version: int = 1, validate_only: bool = False) -> Ask:
    return Ask("alter_client_quotas", version, {"entries": list(entries), "validate_only": validate_only})


def describe(*parts: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Ask:
    components = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in parts]
    return Ask("describe_client_quotas", version, {"components": components, "strict": strict})


def plain(answer: Message) -> Any:
    """An answer without the words of its errors, in an order that does not depend on anybody's hashes."""
    if answer.get("error_code"):
        return answer["error_code"], answer["entries"]

    def entity(one: Message) -> list[Any]:
        return sorted(((part["entity_type"], part["entity_name"]) for part in one["entity"]), key=str)

    def values(one: Message) -> Any:
        if "values" not in one:
            return one["error_code"], bool(one["error_message"])
        return sorted((value["key"], value["value"]) for value in one["values"])

    return sorted(((entity(one), values(one)) for one in answer["entries"]), key=str)


def assert_same(brokers: Brokers, *asks: Ask) -> list[Any]:
    answers = {kind: [plain(answer) for answer in run(broker, asks)] for kind, broker in brokers.items()}
    assert_equal(answers)
    return answers["oncelog"] if "oncelog" in answers else next(iter(answers.values()))


@pytest.mark.parametrize("version", [0, 1])
def test_set_described_changed_removed(both_brokers: Brokers, version: int) -> None:
    client, user = unique(), unique("user")
    of_client = [("client-id", client)]
    of_both = [("user", user), ("client-id", client)]
    by_default = [("user", user), ("client-id", None)]
    mine = ("client-id", EXACT, client)
    answers = assert_same(
        both_brokers,
        alter(entry(of_client, [(PRODUCE, 1000.0), (REQUEST, 12.5)]), entry(of_both, [(FETCH, 7.0)]), version=version),
        alter(entry(by_default, [(FETCH, 5.0)]), version=version),
        alter(entry(of_client, [(PRODUCE, 1.0)]), version=version, validate_only=True),
    )
    assert all(code == 0 for answer in answers for _, (code, _) in answer)
    for broker in both_brokers.values():
        await_quotas(broker, {"client-id": client}, {PRODUCE: 1000.0, REQUEST: 12.5})
        await_quotas(broker, {"user": user, "client-id": None}, {FETCH: 5.0})
    found = assert_same(
        both_brokers,
        describe(mine, version=version),
        describe(mine, strict=True, version=version),
        describe(("user", EXACT, user), version=version),
        describe(("user", EXACT, user), strict=True, version=version),
        describe(("user", EXACT, user), ("client-id", ANY, None), strict=True, version=version),
        describe(("user", EXACT, user), ("client-id", DEFAULT, None), version=version),
        describe(("client-id", EXACT, unique("nobody")), version=version),
    )
    assert [len(answer) for answer in found] == [2, 1, 2, 0, 2, 1, 0]
    removed = [(key, None) for key in (PRODUCE, REQUEST, FETCH)]
    assert_same(both_brokers, alter(*(entry(each, removed) for each in (of_client, of_both, by_default))))
    for broker in both_brokers.values():
        await_quotas(broker, {"client-id": client}, {})
        await_quotas(broker, {"user": user, "client-id": None}, {})


def await_quotas(broker: BrokerProcess, entity: Entity, limits: dict[str, float]) -> None:
    """Kafka's broker hears of a change a moment after its controller has made it."""
    deadline = time.monotonic() + DEADLINE_S
    with Admin(broker.bootstrap) as admin:
        while True:
            found = admin.describe_client_quotas(entity, strict=True)
            if [dict(quota.limits) for quota in found] == ([limits] if limits else []):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


OF_CLIENT = [("client-id", "refused")]
REFUSED = {
    "unknown key": entry(OF_CLIENT, [("producer_byte_rates", 1.0)]),
    "a key of an ip": entry(OF_CLIENT, [("connection_creation_rate", 1.0)]),
    "a key of a client": entry([("ip", "127.0.0.1")], [(PRODUCE, 1.0)]),
    "zero": entry(OF_CLIENT, [(PRODUCE, 0.0)]) | {"ops": [{"key": PRODUCE, "value": 0.0, "remove": False}]},
    "negative": entry(OF_CLIENT, [(REQUEST, -5.0)]),
    "a fraction of a byte": entry(OF_CLIENT, [(FETCH, 1.5)]),
    "beyond a long": entry(OF_CLIENT, [(FETCH, 1e19)]),
    "unknown entity type": entry([("clientid", "refused")], [(PRODUCE, 1.0)]),
    "no entity": entry([], [(PRODUCE, 1.0)]),
    "empty name": entry([("user", "")], [(PRODUCE, 1.0)]),
    "an ip of a user": entry([("user", "refused"), ("ip", "127.0.0.1")], [(PRODUCE, 1.0)]),
    "one key twice": entry(OF_CLIENT, [(PRODUCE, 1.0), (PRODUCE, 2.0)]),
    "one bad key of two": entry(OF_CLIENT, [(PRODUCE, 1.0), ("nope", 1.0)]),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_refused_and_nothing_changed(both_brokers: Brokers, refused: Message) -> None:
    answer, left = assert_same(both_brokers, alter(refused), describe(("client-id", EXACT, "refused")))
    assert [code for _, (code, _) in answer] == [INVALID_REQUEST]
    assert left == []


ACCEPTED = {
    "nothing at all": entry(OF_CLIENT, []),
    "removed without being there": entry(OF_CLIENT, [(PRODUCE, None)]),
    "an unknown key removed": entry(OF_CLIENT, [("nope", None)]),
}


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_and_nothing_changed(both_brokers: Brokers, accepted: Message) -> None:
    answer, left = assert_same(both_brokers, alter(accepted), describe(("client-id", EXACT, "refused")))
    assert [code for _, (code, _) in answer] == [0]
    assert left == []


def test_the_others_of_a_request_are_altered(both_brokers: Brokers) -> None:
    good, bad = unique(), unique()
    entries = entry([("client-id", good)], [(PRODUCE, 5.0)]), entry([("client-id", bad)], [("nope", 1.0)])
    (answer,) = assert_same(both_brokers, alter(*entries))
    assert sorted(code for _, (code, _) in answer) == [0, INVALID_REQUEST]
    for broker in both_brokers.values():
        await_quotas(broker, {"client-id": good}, {PRODUCE: 5.0})
        with Admin(broker.bootstrap) as admin:
            admin.alter_client_quotas({"client-id": good}, remove=[PRODUCE])


def test_an_entity_twice(both_brokers: Brokers) -> None:
    """Answered alike; but Kafka takes the first of the two, though it says that it did not."""
    client = unique()
    twice = [entry([("client-id", client)], [(PRODUCE, float(n))]) for n in (1, 2)]
    (answer,) = assert_same(both_brokers, alter(*twice))
    assert [code for _, (code, _) in answer] == [INVALID_REQUEST]
    for broker in both_brokers.values():
        with Admin(broker.bootstrap) as admin:
            if broker.kind == "oncelog":
                assert admin.describe_client_quotas({"client-id": client}) == []
            admin.alter_client_quotas({"client-id": client}, remove=[PRODUCE])


FILTERS = {
    "a name is missing": ([("user", EXACT, None)], INVALID_REQUEST),
    "a name for the default": ([("user", DEFAULT, "a")], INVALID_REQUEST),
    "a name for any": ([("user", ANY, "a")], INVALID_REQUEST),
    "unknown match type": ([("user", 7, None)], INVALID_REQUEST),
    "unknown entity type": ([("clientid", ANY, None)], UNSUPPORTED_VERSION),
    "empty entity type": ([("", ANY, None)], INVALID_REQUEST),
    "a type twice": ([("user", ANY, None), ("user", EXACT, "a")], INVALID_REQUEST),
    "an ip of a user": ([("user", ANY, None), ("ip", ANY, None)], INVALID_REQUEST),
}


@pytest.mark.parametrize(("parts", "code"), FILTERS.values(), ids=FILTERS.keys())
@pytest.mark.parametrize("version", [0, 1])
def test_filters_that_mean_nothing(
    both_brokers: Brokers, parts: list[tuple[str, int, str | None]], code: int, version: int
) -> None:
    assert assert_same(both_brokers, describe(*parts, version=version)) == [(code, None)]


# --- Kafka's own tool, and ours ---


def test_kafkas_config_tool(broker: BrokerProcess) -> None:
    client = unique()
    entity = ("--bootstrap-server", broker.bootstrap, "--entity-type", "clients", "--entity-name", client)
    limits = f"{PRODUCE}=1048576,{FETCH}=2097152,{REQUEST}=150.5"
    done = run_tool(CONFIG_TOOL, *entity, "--alter", "--add-config", limits)
    assert "Completed updating config" in done.stdout
    await_quotas(broker, {"client-id": client}, {PRODUCE: 1048576.0, FETCH: 2097152.0, REQUEST: 150.5})
    described = run_tool(CONFIG_TOOL, *entity, "--describe").stdout
    assert dict(re.findall(r"(\w+)=([\d.]+)", described)) == {
        PRODUCE: "1048576.0",
        FETCH: "2097152.0",
        REQUEST: "150.5",
    }
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({"client-id": client}, remove=[PRODUCE, FETCH, REQUEST])


def test_our_admin(broker: BrokerProcess) -> None:
    user = unique("user")
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({"user": user, "client-id": None}, assign={PRODUCE: 10, REQUEST: 2.5})
        await_quotas(broker, {"user": user, "client-id": None}, {PRODUCE: 10.0, REQUEST: 2.5})
        for found in (
            admin.describe_client_quotas({"user": user}),
            admin.describe_client_quotas({"user": user, "client-id": ANY_NAME}),
            [quota for quota in admin.describe_client_quotas() if quota.entity.get("user") == user],
        ):
            assert [dict(quota.entity) for quota in found] == [{"user": user, "client-id": None}]
        admin.alter_client_quotas({"user": user, "client-id": None}, remove=[PRODUCE, REQUEST])


# --- what a client notices ---


@contextmanager
def limited(broker: BrokerProcess, client: str, **limits: float) -> Iterator[None]:
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({"client-id": client}, assign=limits)
        await_quotas(broker, {"client-id": client}, limits)
        _await_enforcement(broker, admin)
        yield
        admin.alter_client_quotas({"client-id": client}, remove=limits)


def _await_enforcement(broker: BrokerProcess, admin: Admin) -> None:
    """Kafka's broker tells of a quota before it acts by it. Changes are made in order: once a later one is felt, of
    somebody else, all before it are."""
    scout = unique("scout")
    admin.alter_client_quotas({"client-id": scout}, assign={REQUEST: 1e-6})
    with NamedClient(broker, scout) as client:
        eventually(lambda: client.request("metadata", 12, {"topics": []})["throttle_time"] > 0, "a quota is felt")
    admin.alter_client_quotas({"client-id": scout}, remove=[REQUEST])


class NamedClient(RawClient):
    """A connection whose requests carry this client id."""

    def __init__(self, broker: BrokerProcess, client_id: str) -> None:
        super().__init__(broker.address)
        self.client_id = client_id

    def send(self, api: str, version: int, message: Message | None = None) -> int:
        self._correlation_id += 1
        self.send_bytes(encode_request(api, version, message or {}, self._correlation_id, self.client_id))
        return self._correlation_id


def test_the_pause_of_a_burst_is_kafkas_to_the_millisecond(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, client_id, limit = new_topic(), unique(), 100_000
    request = produce_request(topic, make_batch([bytes(250_000)]))
    size_bytes = len(encode_request("produce", 9, request, 1, client_id)) - 4
    with RawClient(broker.address) as client:
        create_raw(client, topic)
    with limited(broker, client_id, producer_byte_rate=limit), NamedClient(broker, client_id) as client:
        answer = client.request("produce", 9, request)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        assert answer["throttle_time"] == round(size_bytes * 1000 / limit - FULL_SAMPLES_S * 1000)


def test_a_throttled_connection_is_muted_and_not_dropped(broker: BrokerProcess, new_topic: Topics) -> None:
    """What is sent meanwhile waits, and is answered in order; others are not concerned."""
    topic, client_id = new_topic(), unique()
    with RawClient(broker.address) as other, NamedClient(broker, client_id) as client:
        create_raw(other, topic)
        with limited(broker, client_id, producer_byte_rate=100_000):
            began = time.monotonic()
            answer = client.request("produce", 9, produce_request(topic, make_batch([bytes(300_000)])))
            assert answer["throttle_time"] >= 1000
            waiting = [client.send("metadata", 12, {"topics": []}) for _ in range(3)]
            assert other.request("metadata", 12, {"topics": []})["throttle_time"] == 0
            for correlation_id in waiting:
                client.receive("metadata", 12, correlation_id)
                assert time.monotonic() - began >= 1


def test_a_request_without_an_answer_is_throttled_all_the_same(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, client_id = new_topic(), unique()
    with RawClient(broker.address) as other, NamedClient(broker, client_id) as client:
        create_raw(other, topic)
        with limited(broker, client_id, producer_byte_rate=100_000):
            began = time.monotonic()
            client.send("produce", 9, produce_request(topic, make_batch([bytes(300_000)]), acks=0))
            waiting = client.send("metadata", 12, {"topics": []})
            client.receive("metadata", 12, waiting)
            assert time.monotonic() - began >= 1


def test_a_fetch_above_the_quota_is_empty_at_once(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(broker.address) as other:
        create_raw(other, topic)
        for _ in range(4):
            other.request("produce", 9, produce_request(topic, make_batch([bytes(50_000)])))

    def is_seen() -> bool:
        """Not if the machine was so slow that the quota allowed the second answer as well."""
        client_id = unique()
        with limited(broker, client_id, consumer_byte_rate=40_000), NamedClient(broker, client_id) as client:
            began = time.monotonic()
            # Two seconds' worth are 80,000 bytes: one batch and a bit, of which only whole ones are counted here.
            first = client.request("fetch", 12, fetch_request(topic, 0, max_bytes=60_000))
            assert first["throttle_time"] == 0
            assert len(first["responses"][0]["partitions"][0]["records"]) > 50_000
            second = client.request("fetch", 12, fetch_request(topic, 1, max_bytes=60_000, max_wait=20_000))
            if time.monotonic() - began > 0.5:
                return False
            assert second["throttle_time"] > 0
            assert second["responses"] == []
            _await_records(client, topic)
            return True

    eventually(is_seen, "two fetches right after each other")


def _await_records(client: RawClient, topic: str) -> None:
    for _ in range(20):
        if client.request("fetch", 12, fetch_request(topic, 1, max_bytes=60_000))["responses"]:
            return
    raise AssertionError("nothing comes any more")


@pytest.mark.parametrize("api", ["metadata", "produce", "fetch"])
def test_time_is_limited_for_every_request(broker: BrokerProcess, new_topic: Topics, api: str) -> None:
    """So small a share that any request is above it; the pause is a second at most, on both brokers."""
    topic, client_id = new_topic(), unique()
    with RawClient(broker.address) as other:
        create_raw(other, topic)
    requests = {
        "metadata": (12, {"topics": []}),
        "produce": (9, produce_request(topic, make_batch())),
        "fetch": (12, fetch_request(topic, 0, max_wait=0)),
    }
    with limited(broker, client_id, request_percentage=1e-6), NamedClient(broker, client_id) as client:
        version, body = requests[api]
        assert client.request(api, version, body)["throttle_time"] == 1000


def test_a_real_producer_loses_nothing(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, client_id, events = new_topic(), unique(), list[ThrottleEvent]()
    create_topic(broker, topic)
    with limited(broker, client_id, producer_byte_rate=100_000):
        settings = {"client.id": client_id, "throttle_cb": events.append, "batch.size": 100_000}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        values = [b"%06d" % number + bytes(1000) for number in range(350)]
        send(producer, topic, ({"value": value} for value in values))
    assert any(event.throttle_time > 0 for event in events)
    assert [message.value() for message in read(broker, topic, len(values))] == values


def test_a_real_consumer_loses_nothing(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, client_id, events = new_topic(), unique(), list[ThrottleEvent]()
    create_topic(broker, topic)
    values = [b"%06d" % number + bytes(1000) for number in range(250)]
    send(make_producer(broker, batch_size=20_000), topic, ({"value": value} for value in values))
    with limited(broker, client_id, consumer_byte_rate=100_000):
        settings = {"client.id": client_id, "throttle_cb": events.append}
        settings |= {"group.id": "assigned-by-hand", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            messages = consumer.consume(len(values) - len(found), timeout=DEADLINE_S)
            assert messages, f"only {len(found)} records came"
            found += [message.value() for message in messages]
        consumer.poll(0)
        consumer.close()
    assert any(event.throttle_time > 0 for event in events)
    assert found == values
