from __future__ import annotations

import pytest

from oncelog.client.config import ClientConfig, parse_servers
from oncelog.errors import InvalidConfig


def test_arguments_with_underscores_and_mappings_with_dots_say_the_same() -> None:
    by_argument = ClientConfig.of("a:1,b:2", client_id="me", request_timeout_ms=5)
    by_mapping = ClientConfig.of({"bootstrap.servers": "a:1,b:2", "client.id": "me", "request.timeout.ms": "5"})
    assert by_argument == by_mapping
    assert by_argument.bootstrap_servers == (("a", 1), ("b", 2))
    assert by_argument.request_timeout_ms == 5


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(
        InvalidConfig, match=r"unknown setting request\.timeout\.msec; did you mean request\.timeout\.ms\?"
    ):
        ClientConfig.of("a:1", **{"request.timeout.msec": 5})


@pytest.mark.parametrize("value", [-1, "soon", None])
def test_a_time_must_be_a_number_of_milliseconds(value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"retry\.backoff\.ms is a whole number of milliseconds"):
        ClientConfig.of("a:1", retry_backoff_ms=value)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(InvalidConfig, match=r"bootstrap\.servers is missing"):
        ClientConfig.of({"client.id": "me"})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka:9093", ("kafka", 9093)),
        ("kafka", ("kafka", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_servers(text) == (address,)
    assert parse_servers([text]) == (address,)


@pytest.mark.parametrize("text", ["", " , ", ":9092", "kafka:", "kafka:0", "kafka:65536", "kafka:x", "kafka:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_servers(text)
