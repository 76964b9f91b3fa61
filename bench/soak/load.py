"""The load of a soak: chores that each do the same thing again and again, every so many seconds.

Owns what clients do and how often; never looks at the broker's process. Each chore has a thread of its own, and one
that is late does not catch up, so the rate has a bound. What a chore has used up is counted (`Load.counts`); one that
fails is counted and goes on.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from oncelog import Consumer, Producer
from tests.support.batches import TRANSACTIONAL, ZSTD, make_batch
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient, encode_request
from tests.support.requests import create_topic, fetch_request, produce_request

FORGET_AFTER_S = 120
"""After how long the broker forgets what nobody uses."""

CHECK_INTERVAL_MS = 10_000

BROKER_CONFIG = {
    "metrics.port": "0",
    "group.initial.rebalance.delay.ms": "0",
    "max.incremental.fetch.session.cache.slots": "200",
    "producer.id.expiration.ms": f"{FORGET_AFTER_S * 1_000}",
    "producer.id.expiration.check.interval.ms": f"{CHECK_INTERVAL_MS}",
    "transactional.id.expiration.ms": f"{FORGET_AFTER_S * 1_000}",
    "transaction.remove.expired.transaction.cleanup.interval.ms": f"{CHECK_INTERVAL_MS}",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": f"{1024 * 1024}",
    "offsets.retention.minutes": f"{FORGET_AFTER_S // 60}",
    "offsets.retention.check.interval.ms": f"{CHECK_INTERVAL_MS}",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": f"{1024 * 1024}",
    "log.segment.bytes": f"{1024 * 1024}",
    "log.roll.ms": f"{FORGET_AFTER_S * 500}",
    "log.retention.bytes": f"{4 * 1024 * 1024}",
    "log.retention.ms": f"{FORGET_AFTER_S * 1_000}",
    "log.retention.check.interval.ms": f"{CHECK_INTERVAL_MS}",
    "log.segment.delete.delay.ms": f"{CHECK_INTERVAL_MS}",
    "log.cleaner.backoff.ms": "5000",
    "log.cleaner.delete.retention.ms": f"{FORGET_AFTER_S * 1_000}",
    "metadata.log.max.record.bytes.between.snapshots": f"{128 * 1024}",
    "metadata.log.segment.bytes": f"{1024 * 1024}",
}

STEADY, IDS, COMPACTED, LARGE = "steady", "ids", "compacted", "large"
PARTITIONS = 3
QUIET = {"log_level": 0}
TIMEOUT_S = 30.0
MAX_COMPLAINTS = 20
"""Failures that are shown; all of them are counted."""

Chore = Callable[[int], None]


class Client(RawClient):
    """A raw connection that says who it is, as each real client does."""

    def __init__(self, address: tuple[str, int], client_id: str) -> None:
        super().__init__(address, TIMEOUT_S)
        self.client_id = client_id

    def send(self, api: str, version: int, message: Message | None = None) -> int:
        self._correlation_id += 1
        self.send_bytes(encode_request(api, version, message or {}, self._correlation_id, self.client_id))
        return self._correlation_id


class Load:
    """All chores, in threads, from `start` to `stop`."""

    def __init__(self, broker: BrokerProcess, complain: Callable[[str], None]) -> None:
        self.broker = broker
        self.address = broker.address
        self.bootstrap = broker.bootstrap
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._complain = complain
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._unique = itertools.count()

    def start(self) -> None:
        with RawClient(self.address) as client:
            for topic in (STEADY, IDS):
                create_topic(client, topic, partitions=PARTITIONS)
            create_topic(client, COMPACTED, configs={"cleanup.policy": "compact"})
            create_topic(client, LARGE, configs={"retention.bytes": f"{8 * 1024 * 1024}"})
        for index, (period_s, make) in enumerate(CHORES):
            delay_s = period_s * index / len(CHORES)  # not all at the same moment
            args = (period_s, delay_s, make)
            thread = threading.Thread(target=self._run, args=args, name=make.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        deadline = time.monotonic() + TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self.counts[what] += by

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self.counts)

    def new_name(self, what: str) -> str:
        return f"{what}-{next(self._unique)}"

    def connect(self, what: str) -> Client:
        self.count("connections")
        return Client(self.address, self.new_name(what))

    def _run(self, period_s: float, delay_s: float, make: Callable[[Load], Chore]) -> None:
        chore: Chore | None = None
        due_s = time.monotonic() + delay_s
        for number in itertools.count():
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                break
            try:
                chore = chore or make(self)
                chore(number)
            except Exception as error:
                self._failed(make.__name__, error)
                chore = None  # whatever it held may be of no more use
            due_s = max(due_s + period_s, time.monotonic())
        close = getattr(chore, "close", None)
        if close is not None:
            close()

    def _failed(self, name: str, error: Exception) -> None:
        if self._stopped.is_set():
            return
        with self._lock:
            self.failures[name] += 1
            shown = sum(self.failures.values()) <= MAX_COMPLAINTS
        if shown:
            self._complain(f"{name} failed: {type(error).__name__}: {error}")


def check(answer: Message) -> Message:
    if answer.get("error_code", 0):
        raise RuntimeError(f"answered {answer}")
    return answer


def produce(client: Client, topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> None:
    message = produce_request(topic, batch, partition=partition, transactional_id=transactional_id)
    answer = client.request("produce", 12, message)
    check(answer["responses"][0]["partition_responses"][0])


# --- producers --------------------------------------------------------------------------------------------------------


def steady_producer(load: Load) -> Chore:
    """Stays, and writes all the time."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": load.bootstrap, "enable.idempotence": True, "linger.ms": 20, **QUIET}
    )

    def chore(number: int) -> None:
        for index in range(50):
            producer.produce(STEADY, os.urandom(200), partition=index % PARTITIONS)
        if producer.flush(TIMEOUT_S):
            raise TimeoutError("not delivered")
        load.count("records", 50)

    return chore


def short_confluent_producer(load: Load) -> Chore:
    def chore(number: int) -> None:
        settings = {"bootstrap.servers": load.bootstrap, "enable.idempotence": True, "linger.ms": 0, **QUIET}
        producer = confluent_kafka.Producer({**settings, "client.id": load.new_name("confluent")})
        for index in range(12):
            producer.produce(STEADY, b"short", partition=index % PARTITIONS)
        if producer.flush(TIMEOUT_S):
            raise TimeoutError("not delivered")
        load.count("producer ids")
        load.count("records", 12)

    return chore


def short_oncelog_producer(load: Load) -> Chore:
    def chore(number: int) -> None:
        with Producer(load.bootstrap, client_id=load.new_name("oncelog")) as producer:
            for index in range(12):
                producer.send(STEADY, b"short", partition=index % PARTITIONS)
            producer.flush(TIMEOUT_S)
        load.count("producer ids")
        load.count("records", 12)

    return chore


def raw_producer_ids(load: Load) -> Chore:
    """Ten new ids, with as many batches of each as a broker remembers."""

    def chore(number: int) -> None:
        with load.connect("ids") as client:
            for index in range(10):
                given = check(client.request("init_producer_id", 4, {"transaction_timeout": 60_000, "producer_id": -1}))
                for sequence in range(5):
                    batch = make_batch(
                        [b"one"],
                        producer_id=given["producer_id"],
                        epoch=given["producer_epoch"],
                        sequence=sequence,
                        base_timestamp=time.time_ns() // 1_000_000,
                    )
                    produce(client, IDS, index % PARTITIONS, batch)
        load.count("producer ids", 10)
        load.count("records", 50)

    return chore


def large_batches(load: Load) -> Chore:
    """Half a megabyte that says little compressed, and as much that cannot be."""

    def chore(number: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        with load.connect("large") as client:
            produce(client, LARGE, 0, make_batch([b"x" * 500_000], codec=ZSTD, base_timestamp=now_ms))
            produce(client, LARGE, 0, make_batch([os.urandom(500_000)], base_timestamp=now_ms))
        load.count("records", 2)

    return chore


def compacted_topic(load: Load) -> Chore:
    """A thousand keys again and again, one in ten deleted, and keys that never come again."""
    producer = Producer(load.bootstrap, client_id="compacted")

    def chore(number: int) -> None:
        for index in range(40):
            key = (number * 40 + index) % 1_000
            producer.send(COMPACTED, None if key % 10 == 0 else os.urandom(300), key=b"key-%d" % key)
        once = b"once-%d" % number
        producer.send(COMPACTED, b"short-lived", key=once)
        producer.send(COMPACTED, None, key=once)
        producer.flush(TIMEOUT_S)
        load.count("records", 42)

    chore.close = producer.close  # type: ignore[attr-defined]
    return chore


# --- transactions -----------------------------------------------------------------------------------------------------


def new_transactional_ids(load: Load) -> Chore:
    """A new id each time; of three transactions one is aborted."""

    def chore(number: int) -> None:
        name = load.new_name("transactor")
        producer = confluent_kafka.Producer({"bootstrap.servers": load.bootstrap, "transactional.id": name, **QUIET})
        producer.init_transactions(TIMEOUT_S)
        for ending in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for index in range(6):
                producer.produce(STEADY, b"transactional", partition=index % PARTITIONS)
            producer.flush(TIMEOUT_S)
            ending(TIMEOUT_S)
        load.count("transactional ids")
        load.count("producer ids")
        load.count("transactions", 3)

    return chore


def recurring_transactional_ids(load: Load) -> Chore:
    """Five ids in turn, each time a new producer that fences the one before; offsets of a group are part of it."""

    def chore(number: int) -> None:
        reading = Consumer(
            load.bootstrap,
            group_id=f"processor-{number % 5}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        reading.subscribe([STEADY])
        try:
            records = _read_some(reading, 10)
            with Producer(load.bootstrap, transactional_id=f"recurring-{number % 5}") as producer:
                producer.init_transactions(TIMEOUT_S)
                producer.begin()
                for record in records:
                    producer.send(IDS, record.value, partition=record.partition)
                if number % 3:
                    offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
                    producer.send_offsets_to_transaction(offsets, reading.group_metadata())
                    producer.commit(TIMEOUT_S)
                else:
                    producer.abort(TIMEOUT_S)
        finally:
            reading.close()
        load.count("transactions")

    return chore


def abandoned_transactions(load: Load) -> Chore:
    """Nobody ends them: the broker must, when their time is up."""

    def chore(number: int) -> None:
        name = load.new_name("abandoned")
        with load.connect("abandoning") as client:
            _await_coordinator(client, name, 1)
            wanted = {"transactional_id": name, "transaction_timeout": 2_000, "producer_id": -1, "producer_epoch": -1}
            given = check(client.request("init_producer_id", 5, wanted))
            batch = make_batch(
                [b"never seen"],
                producer_id=given["producer_id"],
                epoch=given["producer_epoch"],
                sequence=0,
                attributes=TRANSACTIONAL,
                base_timestamp=time.time_ns() // 1_000_000,
            )
            produce(client, IDS, number % PARTITIONS, batch, name)
        load.count("transactional ids")
        load.count("producer ids")
        load.count("transactions")

    return chore


# --- readers and groups -----------------------------------------------------------------------------------------------


class SteadyReaders:
    """Two groups that stay, one of each protocol; what they read they commit."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._classic = confluent_kafka.Consumer(
            {"bootstrap.servers": load.bootstrap, "group.id": "steady-classic", "auto.offset.reset": "latest", **QUIET}
        )
        self._classic.subscribe([STEADY])
        self._modern = Consumer(load.bootstrap, group_id="steady-modern", group_protocol="consumer")
        self._modern.subscribe([STEADY, COMPACTED])

    def __call__(self, number: int) -> None:
        read = len(self._classic.consume(1_000, 0.1)) + len(self._modern.poll(0.1))
        self._load.count("records read", read)

    def close(self) -> None:
        self._classic.close()
        self._modern.close()


def steady_readers(load: Load) -> Chore:
    return SteadyReaders(load)


def classic_groups(load: Load) -> Chore:
    def chore(number: int) -> None:
        settings = {"bootstrap.servers": load.bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(
            {**settings, "group.id": load.new_name("classic"), "client.id": load.new_name("reader"), **QUIET}
        )
        consumer.subscribe([STEADY])
        try:
            if not consumer.consume(10, TIMEOUT_S):
                raise TimeoutError("nothing read")
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        load.count("groups")

    return chore


def consumer_groups(load: Load) -> Chore:
    """By KIP-848."""

    def chore(number: int) -> None:
        with Consumer(
            load.bootstrap,
            group_id=load.new_name("modern"),
            client_id=load.new_name("reader"),
            group_protocol="consumer",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([STEADY])
            _read_some(consumer, 10)
            consumer.commit()
        load.count("groups")

    return chore


def simple_offset_commits(load: Load) -> Chore:
    """Offsets without members, of new groups; one in four is deleted at once, the others expire."""

    def chore(number: int) -> None:
        with load.connect("committer") as client:
            for index in range(4):
                group = load.new_name("offsets")
                _await_coordinator(client, group, 0)
                partitions = [{"partition_index": each, "committed_offset": number} for each in range(PARTITIONS)]
                commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
                topics = [{"name": STEADY, "partitions": partitions}]
                answer = client.request("offset_commit", 8, {**commit, "topics": topics})
                check(answer["topics"][0]["partitions"][0])
                if index == 0:
                    check(client.request("delete_groups", 2, {"groups_names": [group]})["results"][0])
        load.count("groups", 4)

    return chore


def fetch_sessions(load: Load) -> Chore:
    """A full fetch that begins a session, two that go on with it; half of the clients end it, the others just go."""

    def chore(number: int) -> None:
        with load.connect("fetcher") as client:
            metadata = client.request("metadata", 12, {"topics": [{"name": LARGE, "topic_id": None}]})
            topic_id = metadata["topics"][0]["topic_id"]
            wanted = fetch_request(LARGE, 0, topic_id=topic_id, max_bytes=1 << 20, max_wait=50)
            answer = check(client.request("fetch", 16, {**wanted, "session_epoch": 0}))
            if not answer["session_id"]:
                return  # there are as many as the broker keeps, and none is old enough to go
            for epoch in (1, 2):
                going_on = {"session_id": answer["session_id"], "session_epoch": epoch, "topics": []}
                check(client.request("fetch", 16, {**wanted, **going_on}))
            if number % 2:
                ending = {"session_id": answer["session_id"], "session_epoch": -1, "topics": []}
                client.request("fetch", 16, {**wanted, **ending})
        load.count("fetch sessions")

    return chore


# --- topics, admin, connections ---------------------------------------------------------------------------------------


def topics_that_go(load: Load) -> Chore:
    """Created (by name, and by being mentioned), written to, read, deleted."""

    def chore(number: int) -> None:
        with load.connect("creator") as client:
            name = load.new_name("churn")
            if number % 2:
                create_topic(client, name, partitions=2)
            else:
                mention = {"topics": [{"name": name, "topic_id": None}], "allow_auto_topic_creation": True}
                client.request("metadata", 12, mention)
            batch = make_batch([b"gone soon"] * 3, base_timestamp=time.time_ns() // 1_000_000)
            produce(client, name, 0, batch)
            client.request("fetch", 12, fetch_request(name, 0))
            deleted = {"topics": [{"name": name, "topic_id": None}], "timeout": 30_000}
            check(client.request("delete_topics", 6, deleted)["responses"][0])
        load.count("topics")

    return chore


def admin_requests(load: Load) -> Chore:
    admin = AdminClient({"bootstrap.servers": load.bootstrap, **QUIET})

    def chore(number: int) -> None:
        admin.list_topics(timeout=TIMEOUT_S)
        admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        described = admin.describe_consumer_groups(["steady-classic", "steady-modern"], request_timeout=TIMEOUT_S)
        for future in described.values():
            future.result(TIMEOUT_S)
        for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, STEADY)]).values():
            future.result(TIMEOUT_S)
        with load.connect("admin") as client:
            change = {"name": "retention.ms", "config_operation": 0, "value": f"{120_000 + number % 2}"}
            resource = {"resource_type": 2, "resource_name": STEADY, "configs": [change]}
            changed = client.request("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
            check(changed["responses"][0])
            client.request("describe_producers", 0, {"topics": [{"name": IDS, "partition_indexes": [0, 1, 2]}]})
            client.request("list_transactions", 0, {"state_filters": [], "producer_id_filters": []})
            client.request("describe_log_dirs", 4, {"topics": None})
            _set_and_unset_a_quota(client, load.new_name("limited"))
        load.count("admin requests", 10)

    return chore


def _set_and_unset_a_quota(client: Client, limited: str) -> None:
    for remove in (False, True):
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": limited}],
            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": remove}],
        }
        answer = client.request("alter_client_quotas", 1, {"entries": [entry], "validate_only": False})
        check(answer["entries"][0])
        check(client.request("api_versions", 3, {"client_software_name": limited, "client_software_version": "1"}))


def connections(load: Load) -> Chore:
    """Some say nothing, some ask once, some send what is no request."""

    def chore(number: int) -> None:
        for index in range(10):
            with load.connect("visitor") as client:
                if index < 5:
                    continue
                if index < 9:
                    visitor = {"client_software_name": client.client_id, "client_software_version": f"{number}"}
                    check(client.request("api_versions", 3, visitor))
                else:
                    client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
                    client.socket.shutdown(socket.SHUT_WR)

    return chore


def metrics_page(load: Load) -> Chore:
    (port,) = re.findall(r"metrics at http://[^:]+:(\d+)/metrics", load.broker.log)

    def chore(number: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as page:
            page.read()
        load.count("scrapes")

    return chore


def _await_coordinator(client: Client, key: str, key_type: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        wanted = {"key_type": key_type, "coordinator_keys": [key]}
        (found,) = client.request("find_coordinator", 4, wanted)["coordinators"]
        if not found["error_code"]:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no coordinator: {found}")
        time.sleep(0.1)


def _read_some(consumer: Consumer, wanted: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(records)} of {wanted} records read")
        records += consumer.poll(0.5)
    return records


CHORES: tuple[tuple[float, Callable[[Load], Chore]], ...] = (
    (0.5, steady_producer),
    (2.0, short_confluent_producer),
    (2.0, short_oncelog_producer),
    (0.5, raw_producer_ids),
    (2.0, large_batches),
    (0.5, compacted_topic),
    (3.0, new_transactional_ids),
    (3.0, recurring_transactional_ids),
    (5.0, abandoned_transactions),
    (0.5, steady_readers),
    (3.0, classic_groups),
    (3.0, consumer_groups),
    (0.5, simple_offset_commits),
    (0.5, fetch_sessions),
    (1.0, topics_that_go),
    (5.0, admin_requests),
    (0.5, connections),
    (5.0, metrics_page),
)
"""How often, in seconds, and what."""

logging.getLogger("oncelog").setLevel(logging.ERROR)
