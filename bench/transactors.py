"""The transactional producers that are measured, each in a process of its own, and raw requests for many ids at once.

Both clients get the same work: begin, `size` records of 100 B, commit, one transaction after the other. The clock
starts after a first transaction, when everybody knows everybody.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.worker import Result, measured, serve
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, decode_exactly, encode
from oncelog.wire.frame import decode_response_header, encode_request

VALUE = b"v" * 100
END_TIMEOUT_S = 60.0
PIPELINED = 200
"""Requests on one connection that are not answered yet."""
SOCKET_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Job:
    bootstrap: str
    topic: str
    transactions: int
    size: int
    broker_pid: int = 0

    def measured(self, program: str, source: Path | None = None) -> Result:
        return measured("bench.transactors", program, self, source)


def timed(job: Job, transaction: Callable[[], None]) -> Result:
    transaction()
    begun = time.perf_counter()
    for _ in range(job.transactions):
        transaction()
    elapsed_s = time.perf_counter() - begun
    return {"rate": job.transactions / elapsed_s, "records": job.transactions * job.size / elapsed_s}


def confluent(job: Job) -> Result:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "transactional.id": f"confluent-{time.time_ns()}",
            "linger.ms": 0 if job.size == 1 else 5,
            "log_level": 0,
        }
    )
    producer.init_transactions(END_TIMEOUT_S)

    def transaction() -> None:
        producer.begin_transaction()
        for _ in range(job.size):
            producer.produce(job.topic, VALUE)
        producer.commit_transaction(END_TIMEOUT_S)

    return timed(job, transaction)


def oncelog(job: Job) -> Result:
    from oncelog import Producer

    with Producer(
        job.bootstrap, transactional_id=f"oncelog-{time.time_ns()}", linger_ms=0 if job.size == 1 else 5
    ) as producer:
        producer.init_transactions(END_TIMEOUT_S)

        def transaction() -> None:
            producer.begin()
            for _ in range(job.size):
                producer.send(job.topic, VALUE)
            producer.commit(END_TIMEOUT_S)

        return timed(job, transaction)


JOBS = {"confluent": confluent, "oncelog": oncelog}


# --- many ids ---------------------------------------------------------------------------------------------------------

INIT_VERSION, ADD_VERSION, DESCRIBE_VERSION, FIND_VERSION = 4, 3, 0, 4
TRANSACTION_KEY = 1
LONGEST_TIMEOUT_MS = 900_000
NOT_READY = (14, 15, 16, 51)
RETRY_S = 0.05
FRAME = struct.Struct(">i")


class Conversation:
    """Requests in a pipeline, answers in their order."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=SOCKET_TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, api_key: ApiKey, version: int, bodies: Iterable[Message]) -> Iterator[Message]:
        schema = api_key.schema_prefix
        rest = iter(bodies)
        while chunk := list(itertools.islice(rest, PIPELINED)):
            frames = [
                encode_request(api_key, version, 0, "bench", encode(f"{schema}Request", version, b)) for b in chunk
            ]
            self._socket.sendall(b"".join(frames))
            for _ in chunk:
                (size,) = FRAME.unpack(self._file.read(FRAME.size))
                frame = memoryview(self._file.read(size))
                _, position = decode_response_header(api_key, version, frame)
                yield decode_exactly(f"{schema}Response", version, frame, position)

    def one(self, api_key: ApiKey, version: int, body: Message) -> Message:
        return next(self.ask(api_key, version, [body]))


def name(number: int) -> str:
    return f"id-{number}"


def initialise(address: tuple[str, int], count: int) -> dict[str, Message]:
    """So many transactional ids get a producer id."""
    with Conversation(address) as coordinator:
        await_coordinator(coordinator)
        answers: dict[str, Message] = {}
        waiting = [name(number) for number in range(count)]
        while waiting:
            bodies = [{"transactional_id": one, "transaction_timeout_ms": LONGEST_TIMEOUT_MS} for one in waiting]
            answered = zip(waiting, coordinator.ask(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, bodies), strict=True)
            refused = []
            for one, answer in answered:
                if answer["error_code"] in NOT_READY:
                    refused.append(one)
                else:
                    assert answer["error_code"] == 0, answer
                    answers[one] = answer
            waiting = refused
        return answers


def await_coordinator(coordinator: Conversation) -> None:
    body: Message = {"key_type": TRANSACTION_KEY, "coordinator_keys": [name(0)]}
    while coordinator.one(ApiKey.FIND_COORDINATOR, FIND_VERSION, body)["coordinators"][0]["error_code"]:
        time.sleep(RETRY_S)


def open_transactions(address: tuple[str, int], producers: dict[str, Message], topic: str) -> None:
    with Conversation(address) as coordinator:
        bodies: list[Message] = [
            {
                "v3_and_below_transactional_id": one,
                "v3_and_below_producer_id": answer["producer_id"],
                "v3_and_below_producer_epoch": answer["producer_epoch"],
                "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
            }
            for one, answer in producers.items()
        ]
        for answer in coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, ADD_VERSION, bodies):
            (result,) = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
            assert result["partition_error_code"] == 0, answer


def await_all_known(address: tuple[str, int], count: int) -> None:
    """Until the coordinators of all these ids can describe them."""
    with Conversation(address) as coordinator:
        waiting = [name(number) for number in range(count)]
        while waiting:
            body: Message = {"transactional_ids": waiting}
            states: list[Any] = coordinator.one(ApiKey.DESCRIBE_TRANSACTIONS, DESCRIBE_VERSION, body)[
                "transaction_states"
            ]
            waiting = [one["transactional_id"] for one in states if one["error_code"] in NOT_READY]
            assert not [one for one in states if one["error_code"] not in (0, *NOT_READY)], states[:3]
            if waiting:
                time.sleep(RETRY_S)


if __name__ == "__main__":
    serve(JOBS, Job)
