from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from oncelog.client.settings import (
    MAX_INT,
    Choice,
    Flag,
    Milliseconds,
    Number,
    Optional,
    Servers,
    Text,
    TextKind,
    kinds_of,
    parse_servers,
    read_settings,
)
from oncelog.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Config:
    bootstrap_servers: Servers
    name_of_it: Text = "it"
    linger_ms: Milliseconds = 5
    is_on: Flag = False
    level: Annotated[int, Number(-1, 9)] = -1
    colour: Annotated[str, Choice(("red", "GREEN"), {"scarlet": "red"})] = "red"
    maybe: Annotated[str | None, Optional(TextKind())] = None


def read(given: Mapping[Any, Any] | str = "a:1", **settings: Any) -> dict[str, Any]:
    return read_settings(
        Config,
        given,
        settings,
        client="producer",
        also={"hue": "colour"},
    )


def test_an_address_that_is_given_twice_is_one() -> None:
    assert parse_servers("a:1, b:2,a:1") == (("a", 1), ("b", 2))


def test_only_what_was_given_comes_back() -> None:
    assert read() == {"bootstrap_servers": (("a", 1),)}
    assert read({"bootstrap.servers": ["a", "b:2"], "linger.ms": 7}) == {
        "bootstrap_servers": (("a", 9092), ("b", 2)),
        "linger_ms": 7,
    }


def test_the_kinds_are_those_of_the_fields_in_order() -> None:
    assert list(kinds_of(Config)) == [
        "bootstrap_servers", "name_of_it", "linger_ms", "is_on", "level", "colour", "maybe",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("linger_ms", 7, 7),
        ("linger.ms", "7", 7),
        ("linger.ms", " 7 ", 7),
        ("linger_ms", 7.0, 7),
        ("is.on", True, True),
        ("is.on", "true", True),
        ("is.on", "No", False),
        ("is_on", 0, False),
        ("level", "-1", -1),
        ("level", 9, 9),
        ("colour", "red", "red"),
        ("colour", "Green", "GREEN"),
        ("colour", "scarlet", "red"),
        ("hue", "red", "red"),
        ("maybe", None, None),
        ("maybe", "yes", "yes"),
        ("name.of.it", "", ""),
    ],
)
def test_values_of_the_type_and_texts_are_understood(key: str, given: object, value: object) -> None:
    (found,) = (value for name, value in read(**{key: given}).items() if name != "bootstrap_servers")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        ("linger_ms", -1, "linger.ms is a whole number of milliseconds of at least 0, not -1"),
        ("linger_ms", 0.5, "linger.ms is a whole number of milliseconds, not 0.5"),
        ("linger_ms", "5ms", "linger.ms is a whole number of milliseconds, not '5ms'"),
        ("linger_ms", True, "linger.ms is a whole number of milliseconds, not True"),
        ("linger_ms", None, "linger.ms is a whole number of milliseconds, not None"),
        ("linger_ms", float("nan"), "linger.ms is a whole number of milliseconds, not nan"),
        ("linger_ms", float("inf"), "linger.ms is a whole number of milliseconds, not inf"),
        ("linger_ms", 2**63, f"linger.ms is a whole number of milliseconds of at most {2**63 - 1}, not {2**63}"),
        ("level", 10, "level is a whole number of at most 9, not 10"),
        ("level", -2, "level is a whole number from -1 to 9, not -2"),
        ("is_on", "maybe", "is.on is true or false, not 'maybe'"),
        ("is_on", None, "is.on is true or false, not None"),
        ("colour", "gren", "colour is one of red, GREEN, not 'gren'; did you mean GREEN?"),
        ("colour", 7, "colour is one of red, GREEN, not 7"),
        ("name_of_it", 7, "name.of.it is a string, not 7"),
        ("maybe", 7, "maybe is a string, not 7"),
    ],
)
def test_other_values_are_refused_with_what_is_allowed(key: str, given: object, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(**{key: given})
    assert caught.value.message == said


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("linger.msec", "unknown setting linger.msec; did you mean linger.ms?"),
        ("lingerMs", "unknown setting lingerMs; did you mean linger.ms?"),
        ("qqq", "unknown setting qqq"),
        ("queue.buffering.max.ms", "unknown setting queue.buffering.max.ms: use linger.ms"),
        ("ssl.key.password", "unknown setting ssl.key.password: there is no TLS and no SASL yet; ..."),
        ("group.id", "unknown setting group.id: it is a setting of consumers; leave this out"),
    ],
)
def test_an_unknown_key_is_refused_with_the_remedy(key: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(**{key: 1})
    begin, dots, _ = said.partition("...")
    assert caught.value.message.startswith(begin) if dots else caught.value.message == said


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^unknown setting 7: keys are strings"):
        read({"bootstrap.servers": "a", 7: 1})


def test_one_setting_written_twice_is_refused_but_an_argument_overrides_a_mapping() -> None:
    with pytest.raises(InvalidConfig, match=r"linger\.ms and linger_ms name the same setting"):
        read({"bootstrap.servers": "a", "linger.ms": 1, "linger_ms": 1})
    with pytest.raises(InvalidConfig, match="colour and hue name the same setting"):
        read(colour="red", hue="red")
    assert read({"bootstrap.servers": "a", "linger.ms": 1}, linger_ms=2)["linger_ms"] == 2


@pytest.mark.parametrize("servers", [7, None])
def test_servers_that_are_no_text_are_refused(servers: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"bootstrap\.servers is HOST:PORT"):
        read(servers)


def test_an_address_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"\('a', 1\) is not the address of a broker; write HOST:PORT"):
        parse_servers([("a", 1)])  # type: ignore[list-item]


def test_what_is_allowed_reads_well() -> None:
    assert Number(0).allowed == "a whole number"
    assert Number(1, MAX_INT).allowed == "a whole number of at least 1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://127.0.0.1:9092", "write HOST:PORT without http://"),
        ("kafka://a:1,b:2", "write HOST:PORT without kafka://"),
        ("PLAINTEXT://", "write HOST:PORT without PLAINTEXT://"),
        ("SSL://a:9093", "a listener with SSL, but this client speaks PLAINTEXT only"),
        ("sasl_ssl://a:9093", "a listener with SASL_SSL, but this client speaks PLAINTEXT only"),
    ],
)
def test_an_address_is_no_url(given: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_servers(given)
    assert said in caught.value.message


def test_a_listener_as_a_broker_names_it_is_an_address() -> None:
    assert parse_servers("PLAINTEXT://a:1,plaintext://[::1]:2/") == (("a", 1), ("::1", 2))
