"""Whatever another library calls a setting: our clients take it, or say what to do instead."""

from __future__ import annotations

import ctypes
import inspect
import re
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka.cimpl
import kafka
import pytest

from oncelog.client import consumer_config, producer_config
from oncelog.client.config import ClientConfig
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.foreign_settings import remedies
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.settings import kinds_of
from oncelog.errors import InvalidConfig

pytestmark = pytest.mark.deterministic

CLIENTS: dict[str, type[Any]] = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": ClientConfig}
TAKEN = {
    "producer": {*kinds_of(ProducerConfig), *producer_config.ALSO},
    "consumer": {*kinds_of(ConsumerConfig), *consumer_config.ALSO},
    "admin": {*kinds_of(ClientConfig)},
}
EVERYWHERE = "*"
CONFLUENT = {
    EVERYWHERE: {"error_cb", "stats_cb", "throttle_cb", "logger", "oauth_cb", "default.topic.config"},
    "producer": {"on_delivery", "key.serializer", "value.serializer"},
    "consumer": {"on_commit", "key.deserializer", "value.deserializer"},
    "admin": set(),
}
"""What confluent-kafka adds to librdkafka's settings, by its documentation."""
OF_OTHERS = {
    *("config.providers", "security.providers", "default.api.timeout.ms", "partitioner.availability.timeout.ms"),
    *("transaction.two.phase.commit.enable", "bootstrap.controllers", "retries"),  # of Kafka's own clients
    *("schema.registry.url", "auto.register.schemas"),  # of serializers
    *("topic", "topics"),  # arguments of constructors
}
NO_SETTINGS = {"auto.create.topics.enable", "producer.metrics", "consumer.metrics"}
"""What else has dots in a remedy."""

each_client = pytest.mark.parametrize("client", CLIENTS)


def librdkafkas(tmp_path: Path) -> dict[str, set[str]]:
    """As the library that is installed prints them, in a table with C for consumers and P for producers."""
    library, libc = ctypes.CDLL(confluent_kafka.cimpl.__file__), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(tmp_path / "properties").encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = re.findall(r"^([\w.]+) +\| +([CP*]) +\|", (tmp_path / "properties").read_text(), re.MULTILINE)
    assert len(rows) > 150
    whose = {"C": "consumer", "P": "producer", "*": EVERYWHERE}
    found: dict[str, set[str]] = {EVERYWHERE: set(), **{client: set() for client in CLIENTS}}
    for name, letter in rows:
        found[whose[letter]].add(name)
    return found


def arguments(kind: type[Any]) -> set[str]:
    return {*inspect.signature(kind.__init__).parameters} - {"self", "topics"}


def theirs(client: str, tmp_path: Path) -> set[str]:
    """All names of a client's settings, in the libraries' own spelling."""
    rdkafka = librdkafkas(tmp_path)
    python: dict[str, list[set[str]]] = {
        "producer": [{*kafka.KafkaProducer.DEFAULT_CONFIG}, arguments(aiokafka.AIOKafkaProducer)],
        "consumer": [{*kafka.KafkaConsumer.DEFAULT_CONFIG}, arguments(aiokafka.AIOKafkaConsumer)],
        "admin": [{*kafka.KafkaAdminClient.DEFAULT_CONFIG}],
    }
    confluent = [CONFLUENT[EVERYWHERE], CONFLUENT[client], rdkafka[EVERYWHERE], rdkafka[client]]
    return set().union(*python[client], *confluent)


def told(client: str, key: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        CLIENTS[client].of("a:1", **{key: "x"})
    return str(caught.value)


@each_client
def test_every_setting_of_another_library_is_taken_or_refused_with_a_remedy(client: str, tmp_path: Path) -> None:
    names = theirs(client, tmp_path)
    assert len(names) > 90
    strange = {name for name in names if name.replace(".", "_") not in TAKEN[client]}
    said = {name: told(client, name) for name in strange}
    assert {name: text for name, text in said.items() if not text.startswith(f"unknown setting {name}: ")} == {}


@each_client
def test_no_remedy_is_for_nothing(client: str, tmp_path: Path) -> None:
    """Each key of the table is somebody's, and no setting of ours."""
    names = set().union(*(theirs(each, tmp_path) for each in CLIENTS))
    known = {name.replace(".", "_") for name in names | OF_OTHERS}
    for key in remedies(client):
        name = key.replace(".", "_")
        assert name not in TAKEN[client]
        found = any(one.startswith(name[:-1]) for one in known) if name.endswith("*") else name in known
        assert found, f"nobody has {key}"


@each_client
def test_every_setting_that_a_remedy_names_is_one_of_ours(client: str) -> None:
    for key, text in remedies(client).items():
        for named in re.findall(r"\b[a-z]+(?:\.[a-z]+){1,}\b", text.replace("oncelog.", "").replace("logging.", "")):
            name = named.replace(".", "_")
            assert name in TAKEN[client] or named in NO_SETTINGS, f"{key}: {text}"


@pytest.mark.parametrize(
    ("client", "key", "said"),
    [
        ("producer", "queue.buffering.max.ms", "use linger.ms"),
        ("producer", "queue_buffering_max_ms", "use linger.ms"),
        ("producer", "error_cb", "errors are raised by the call that they concern, and by the record's result; "),
        ("producer", "group.id", "it is a setting of consumers; leave this out"),
        ("producer", "value.deserializer", "it is a setting of consumers; use value.serializer"),
        ("consumer", "key_serializer", "it is a setting of producers; use key.deserializer"),
        ("consumer", "stats_cb", "call consumer.metrics() whenever you want to know, or use Prometheus"),
        ("consumer", "sasl.username", "there is no TLS and no SASL yet;"),
        ("consumer", "acks", "it is a setting of producers; leave this out"),
        ("admin", "linger_ms", "it is a setting of producers; leave this out"),
        ("admin", "metadata_max_age_ms", "it is a setting of producers and consumers; leave this out"),
        ("admin", "log_level", "what goes on is told to Python's logging:"),
    ],
)
def test_what_is_said(client: str, key: str, said: str) -> None:
    assert told(client, key).startswith(f"unknown setting {key}: {said}")


def test_clients_that_share_one_mapping() -> None:
    shared = {"bootstrap.servers": "a:1", "security.protocol": "PLAINTEXT", "client.id": "shop"}
    assert {type(config.of(shared)) for config in CLIENTS.values()} == {*CLIENTS.values()}
