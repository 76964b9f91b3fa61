"""Captures what Apache Kafka answers about transactions, and the records that it keeps of them.

    python -m tests.coordinator.transactions.capture

holds the conversation of `scenario` with Apache Kafka; its answers go to `golden/answers.json`, the segment of
`__transaction_state` to `golden/transaction_state.log`. Nothing in them comes from oncelog's coordinator.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.transactions.scenario import PARTITIONS, TOPICS, hold
from tests.golden.capture_groups import Socket
from tests.support.kafka import KafkaBroker

GOLDEN = Path(__file__).parent / "golden"
ANSWERS = GOLDEN / "answers.json"
SEGMENT = GOLDEN / "transaction_state.log"
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


class KafkaConnection:
    def __init__(self, connection: Socket) -> None:
        self._connection = connection

    def ask(self, api_key: ApiKey, version: int, body: Message) -> Message:
        return self._connection.send(api_key, version, body)()

    def await_end(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            time.sleep(0.05)


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        broker = KafkaBroker(Path(scratch), SETTINGS)
        with broker:
            connection = KafkaConnection(Socket(broker.address))
            _prepare(connection)
            answers = list(hold(connection))
        shutil.copyfile(broker.data_dir / "__transaction_state-0" / "00000000000000000000.log", SEGMENT)
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")


def _prepare(connection: KafkaConnection) -> None:
    topics = [{"name": name, "num_partitions": PARTITIONS, "replication_factor": 1} for name in TOPICS]
    connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 10_000})
    for key_type in (0, 1):
        find = {"key_type": key_type, "coordinator_keys": ["g"]}
        while connection.ask(ApiKey.FIND_COORDINATOR, 4, find)["coordinators"][0]["error_code"] != 0:
            time.sleep(0.1)
    nobody = {"transactional_ids": ["nobody"]}
    while connection.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, nobody)["transaction_states"][0]["error_code"] != 105:
        time.sleep(0.1)
    ask = {"groups": [{"group_id": "g", "topics": None}]}
    while connection.ask(ApiKey.OFFSET_FETCH, 8, ask)["groups"][0]["error_code"] != 0:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
