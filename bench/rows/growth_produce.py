"""One synchronous send to one partition while many others exist: it should not notice them.

Twice with confluent-kafka: within one topic of all the partitions, and to a topic of one partition beside it. Twice
without it, within the topic of all the partitions: with `oncelog.Producer`, and with bare requests, which show the
broker alone. The first grows with any broker, because librdkafka goes
through all partitions of a broker each time it wakes, three times for such a send: its own CPU per send, measured
beside, grows as much. On Apache Kafka, whose answers take longer, a part of that hides behind the wait for the answer.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time

from bench.clients import create_topic, synchronous_sends_ms
from bench.figures import Figure, Progress, at_most, percentile
from bench.growth import TOPIC, growth
from bench.scale import Scale
from oncelog.records.batch import build_batch
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import encode_request
from oncelog.wire.produce import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from tests.support.process import BrokerProcess

WHAT = "one synchronous send, p50,"
BESIDE = "one synchronous send to another topic, p50,"
OURS_WITHIN = "one synchronous send of oncelog.Producer, p50,"
BARE_WITHIN = "one bare Produce request until its answer, p50,"
CLIENTS_CPU = "CPU of confluent-kafka itself for one such send,"
ON_KAFKA = "one synchronous send on Apache Kafka, p50,"
VALUE = b"v" * 100
PRODUCE_VERSION = 9
SIZE = struct.Struct(">i")
SEND_TIMEOUT_S = 30.0


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    count, numbers = scale.synchronous_sends, itertools.count()

    def within_ms(broker: BrokerProcess, _: int) -> float:
        return _p50(synchronous_sends_ms(broker.bootstrap, TOPIC, count, VALUE, partition=0))

    def clients_cpu_ms(broker: BrokerProcess, _: int) -> float:
        began_s = time.process_time()
        synchronous_sends_ms(broker.bootstrap, TOPIC, count, VALUE, partition=0)
        return (time.process_time() - began_s) * 1_000 / count

    def beside_ms(broker: BrokerProcess, _: int) -> float:
        single = f"single-{next(numbers)}"
        create_topic(broker.bootstrap, single, 1)
        return _p50(synchronous_sends_ms(broker.bootstrap, single, count, VALUE, partition=0))

    def ours_ms(broker: BrokerProcess, _: int) -> float:
        return _p50(_sends_of_ours_ms(broker.bootstrap, count))

    def bare_ms(broker: BrokerProcess, _: int) -> float:
        return _p50(_bare_requests_ms(broker.address, count))

    rows = ((WHAT, within_ms), (BESIDE, beside_ms), (OURS_WITHIN, ours_ms), (BARE_WITHIN, bare_ms))
    ours = [growth(what, "ms", scale.growth, scale.rounds, at_most(1.2), act, progress) for what, act in rows]
    ours.append(growth(CLIENTS_CPU, "ms", scale.growth, scale.rounds, None, clients_cpu_ms, progress))
    return [*ours, growth(ON_KAFKA, "ms", scale.growth, 1, None, within_ms, progress, kind="kafka")]


def _sends_of_ours_ms(bootstrap: str, count: int) -> list[float]:
    import oncelog

    durations_ms = []
    with oncelog.Producer(bootstrap, linger_ms=0) as producer:
        for _ in range(count):
            began_s = time.perf_counter()
            producer.send(TOPIC, VALUE, partition=0).result(SEND_TIMEOUT_S)
            durations_ms.append((time.perf_counter() - began_s) * 1_000)
    return durations_ms


def _bare_requests_ms(address: tuple[str, int], count: int) -> list[float]:
    batch = bytes(build_batch([(int(time.time() * 1_000), None, VALUE, ())]))
    produce = ProduceRequest(None, -1, 30_000, [ProduceTopic(TOPIC, None, [ProducePartition(0, batch)])])
    body = b"".join(bytes(part) for part in encode_produce_request(PRODUCE_VERSION, produce))
    frame = encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "bench", body)
    durations_ms = []
    with socket.create_connection(address) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            began_s = time.perf_counter()
            connection.sendall(frame)
            (size,) = SIZE.unpack(answers.read(SIZE.size))
            answers.read(size)
            durations_ms.append((time.perf_counter() - began_s) * 1_000)
    return durations_ms


def _p50(durations_ms: list[float]) -> float:
    return percentile(durations_ms[len(durations_ms) // 20 :], 0.5)  # the first ones of a client also fetch metadata
