"""Transactions that hang: open in a partition, and unknown to their coordinator there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.admin import Admin, ResourceType
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import HandProducer

VERIFICATION = "transaction.partition.verification.enable"


@contextmanager
def unverified(broker: BrokerProcess) -> Iterator[None]:
    """Partitions take what is not part of a transaction, as they did before Kafka 3.6."""
    with Admin(broker.bootstrap) as admin:
        node = str(admin.describe_cluster().nodes[0].node_id)
        admin.alter_configs(ResourceType.BROKER, node, assign={VERIFICATION: "false"})
        try:
            yield
        finally:
            admin.alter_configs(ResourceType.BROKER, node, remove=[VERIFICATION])


def write_stray(broker: BrokerProcess, client: RawClient, topic: str, partition: int) -> HandProducer:
    """One whose record in this partition belongs to no transaction that its coordinator knows of."""
    producer = HandProducer(client, f"stray-{uuid.uuid4().hex[:8]}", is_modern=False).begun()
    with unverified(broker):
        # A broker answers the change of its config before it takes effect.
        eventually(lambda: producer.produce(topic, b"stray", partition=partition) == "none", "the stray is taken")
    return producer
