"""Our clients' settings beside those of Kafka's Java clients, as Kafka itself documents them."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

import pytest

from oncelog.client import consumer_config, producer_config
from oncelog.client.config import ClientConfig
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.producer_config import ProducerConfig
from oncelog.errors import InvalidConfig
from tests.support import parts
from tests.support.kafka import run_tool

ENTRY = re.compile(r'<h4><a id="([^"]+)">.*?<th>Default:</th><td>(.*?)</td>', re.DOTALL)

# Where our default is not Kafka's, ours, and why.
DELIBERATE = {
    "client.id": "oncelog-producer",  # Kafka's is empty, which tells operators nothing
    "batch.size": 131_072,  # Kafka allocates a batch's memory in advance, we do not
    "send.buffer.bytes": -1,  # the operating system's own tuning does better than a fixed size
    "receive.buffer.bytes": -1,
    "key.serializer": "auto",  # Kafka has no default
    "value.serializer": "auto",
}


CLIENTS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "producer.ProducerConfig": (ProducerConfig, producer_config.ALSO),
    "consumer.ConsumerConfig": (ConsumerConfig, consumer_config.ALSO),
    "admin.AdminClientConfig": (ClientConfig, {}),
}


@cache
def kafkas_defaults(client: str = "producer.ProducerConfig") -> dict[str, str]:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    page = run_tool(f"org.apache.kafka.clients.{client}").stdout
    found = dict(ENTRY.findall(page))
    assert len(found) > 60
    return found


def our_defaults() -> dict[str, Any]:
    return {each.name.replace("_", "."): each.default for each in fields(ProducerConfig)}


def as_kafka_writes_it(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return {None: "null", -1: "all"}.get(value, str(value))


def test_our_defaults_are_kafkas_where_we_do_not_say_why_not() -> None:
    kafkas, ours = kafkas_defaults(), our_defaults()
    shared = kafkas.keys() & ours.keys() - {"bootstrap.servers"}
    assert len(shared) > 30
    different = {
        key: ours[key]
        for key in shared
        if as_kafka_writes_it(ours[key]) != kafkas[key].split(" (")[0]  # "120000 (2 minutes)"
        and not (ours[key] == -1 and kafkas[key] == "-1")
    }
    assert different == DELIBERATE
    assert MISSING not in {ours[key] for key in shared}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_key_of_kafkas_is_served_or_refused_with_a_reason(client: str) -> None:
    config, also = CLIENTS[client]
    ours = {each.name.replace("_", ".") for each in fields(config)} | {key.replace("_", ".") for key in also}
    for key in kafkas_defaults(client).keys() - ours:
        with pytest.raises(InvalidConfig, match=rf"^unknown setting {re.escape(key)}: ..."):
            config.of("a:1", **{key: "x"})


def test_what_we_add_is_named_here() -> None:
    added = our_defaults().keys() - kafkas_defaults().keys()
    spool = {"spool.dir", "spool.max.bytes", "spool.flush", "spool.unknown", "spool.positions.topic"}
    assert added == {"buffer.full", "partitioner", "interceptors"} | spool
