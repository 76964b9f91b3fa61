"""The Spark audit of real topics: what it finds is what `oncelog audit` finds without Spark, to the letter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import oncelog
from oncelog.audit.ids import ID_HEADER
from oncelog.cli import audit as command
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.types import IsolationLevel
from tests.support import confluent
from tests.support import spark as support
from tests.support.process import BrokerProcess
from tests.support.sizes import IS_SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def fill(broker: BrokerProcess, topic: str, texts: list[str], *, partition: int, aborted: str = "") -> None:
    """Ids in headers and in values by turns; then one more record, in a transaction that is aborted."""
    with oncelog.Producer(broker.bootstrap, linger_ms=5) as producer:
        for at, text in enumerate(texts):
            headers = [(ID_HEADER, text.encode())] if at % 2 else []
            producer.send(topic, partition=partition, value=b"v" if at % 2 else f"{text} v", headers=headers)
    if aborted:
        with oncelog.Producer(broker.bootstrap, transactional_id=f"{topic}-{partition}") as producer:
            producer.init_transactions()
            producer.begin()
            producer.send(topic, partition=partition, value=aborted)
            producer.flush()
            producer.abort()


def test_topics_of_a_broker_are_audited_as_without_spark(
    spark: SparkSession, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    from oncelog.spark.audit import audit_topic

    sent, topic = new_topic(), new_topic()
    for name in (sent, topic):
        confluent.create_topic(broker, name, partitions=3)
    numbers = range(300)
    fill(broker, sent, [f"a/{number}" for number in numbers], partition=0)
    fill(broker, sent, [f"b/{number}" for number in numbers], partition=1)
    damage = [*range(100), *range(90, 95), *range(120, 200), 110, *range(200, 290)]
    fill(broker, topic, [f"a/{number}" for number in damage], partition=0, aborted="a/115 aborted")
    fill(broker, topic, [*(f"b/{number}" for number in numbers), "no id"], partition=2)
    with BlockingClient(ClientConfig.of(broker.bootstrap, client_id="test")) as client:
        if IS_SOAK:
            expected = command.audit_topic(client, topic, UNCOMMITTED)
            assert audit_topic(spark, broker.bootstrap, topic, UNCOMMITTED) == expected
        ledger = command.ledger_of_topic(client, sent, COMMITTED)
        expected = command.audit_topic(client, topic, COMMITTED, ledger)
    assert audit_topic(spark, broker.bootstrap, topic, COMMITTED, sent=sent) == expected
    total = expected.report.total
    found = (total.sent, total.stored, total.lost, total.duplicated, total.out_of_order, total.unnumbered)
    assert found == (600, 576, 29, 5, 1, 1)


def test_the_command(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> None:
    topic = new_topic()
    confluent.create_topic(broker, topic)
    fill(broker, topic, ["a/0", "a/1", "a/1", "a/4", "a/3", "b/0"], partition=0)

    def audit(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "oncelog", "audit", "-b", broker.bootstrap, topic, "--json", *words]
        quick = f'--conf "spark.driver.extraJavaOptions={support.QUICK_JVM} {support.shared_classes()}" pyspark-shell'
        environment = {**os.environ, **support.environment(), "PYSPARK_SUBMIT_ARGS": quick, "TMPDIR": str(tmp_path)}
        return subprocess.run(line, capture_output=True, text=True, timeout=240, check=False, env=environment)

    here = audit("--html", str(tmp_path / "here.html"))
    done = audit("--spark", "--master", "local[2]", "--html", str(tmp_path / "spark.html"))
    assert (done.returncode, done.stdout) == (here.returncode, here.stdout), done.stderr
    assert done.returncode == 1
    assert done.stderr == ""
    assert json.loads(done.stdout)["total"]["lost"] == 1
    assert (tmp_path / "spark.html").read_text() == (tmp_path / "here.html").read_text()
