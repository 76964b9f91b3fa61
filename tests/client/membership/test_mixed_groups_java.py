"""Groups of our members and the Java client's: sticky assignments survive a change of the leader's language."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.client.membership.real_member import RealMember
from tests.client.membership.test_mixed_groups import agree, group, numbers
from tests.support import parts
from tests.support.kafka import java_command
from tests.support.process import BrokerProcess

JAVA_PATIENCE_S = 120.0
JAVA_ASSIGNORS = {
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaConsumer:
    """Kafka's own verifiable consumer, which prints what it is assigned."""

    def __init__(self, broker: BrokerProcess, group_id: str, topic: str, assignor: str) -> None:
        arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", group_id]
        command = java_command(
            "org.apache.kafka.tools.VerifiableConsumer", *arguments, "--assignment-strategy", JAVA_ASSIGNORS[assignor]
        )
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.owned: set[int] = set()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> JavaConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line) if line.startswith("{") else {}
            named = {one["partition"] for one in event.get("partitions", ()) if isinstance(one, dict)}
            if event.get("name") == "partitions_assigned":
                self.owned |= named
            elif event.get("name") == "partitions_revoked":
                self.owned -= named


@pytest.mark.parametrize("strategy", list(JAVA_ASSIGNORS))
def test_with_the_java_client(broker: BrokerProcess, new_topic: Callable[[], str], strategy: str) -> None:
    """We lead first; when we leave, Java does, and leads us when we come back."""
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    topic = new_topic()
    with group(broker, topic) as stack:
        java = stack.enter_context(JavaConsumer(broker, topic, topic, strategy))
        with RealMember(broker.address, topic, [topic], strategy=[strategy]) as us:
            agree(numbers(us), lambda: java.owned, within_s=JAVA_PATIENCE_S)
        agree(lambda: java.owned)
        again = stack.enter_context(RealMember(broker.address, topic, [topic], strategy=[strategy]))
        agree(numbers(again), lambda: java.owned)
