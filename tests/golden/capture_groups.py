"""Captures what Apache Kafka answers about groups, and the records that it keeps of them.

    python -m tests.golden.capture_groups

holds the conversation of `tests.coordinator.scenario` with Apache Kafka; its answers go to `groups/answers.json`, the
segment of `__consumer_offsets` to `groups/consumer_offsets.log`. Nothing in them comes from oncelog's coordinator.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oncelog.wire.api import ApiKey, request_header_version, response_header_version
from oncelog.wire.codec import Message, decode, decode_exactly, encode
from tests.coordinator.scenario import PARTITIONS, TOPICS, hold
from tests.support.kafka import KafkaBroker

GROUPS = Path(__file__).parent / "groups"
ANSWERS = GROUPS / "answers.json"
SEGMENT = GROUPS / "consumer_offsets.log"
TIMEOUT_S = 60


class Socket:
    """A connection on which every request waits for its answer before the next."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def send(self, api_key: ApiKey, version: int, body: Message) -> Callable[[], Message]:
        header = {"request_api_key": int(api_key), "request_api_version": version, "correlation_id": 1}
        request = encode("RequestHeader", request_header_version(api_key, version), header | {"client_id": "client"})
        request += encode(f"{api_key.schema_prefix}Request", version, body)
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        return lambda: self._receive(api_key, version)

    def _receive(self, api_key: ApiKey, version: int) -> Message:
        (size,) = struct.unpack(">i", self._stream.read(4))
        answer = self._stream.read(size)
        _, position = decode("ResponseHeader", response_header_version(api_key, version), answer)
        return decode_exactly(f"{api_key.schema_prefix}Response", version, answer, position)


def main() -> None:
    GROUPS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        broker = KafkaBroker(Path(scratch))
        with broker:
            first = Socket(broker.address)
            prepare(first)
            answers = list(hold(first, Socket(broker.address)))
        shutil.copyfile(broker.data_dir / "__consumer_offsets-0" / "00000000000000000000.log", SEGMENT)
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")


def prepare(connection: Socket) -> None:
    topics = [{"name": name, "num_partitions": PARTITIONS, "replication_factor": 1} for name in TOPICS]
    connection.send(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 10_000})()
    find = {"key_type": 0, "coordinator_keys": ["g"]}
    while connection.send(ApiKey.FIND_COORDINATOR, 4, find)()["coordinators"][0]["error_code"] != 0:
        time.sleep(0.1)
    # A coordinator that loads answers heartbeats with success; offsets it refuses.
    ask = {"groups": [{"group_id": "g", "topics": None}]}
    while connection.send(ApiKey.OFFSET_FETCH, 8, ask)()["groups"][0]["error_code"] != 0:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
