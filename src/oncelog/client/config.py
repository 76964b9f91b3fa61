"""What the blocking client and `Admin` may be told: Kafka's keys, written with dots or with underscores.

`ClientConfig.of("host:9092", client_id="me")` says the same as
`ClientConfig.of({"bootstrap.servers": "host:9092", "client.id": "me"})`. A key that does not exist is an error that
names the nearest one that does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from oncelog.errors import InvalidConfig

DEFAULT_PORT = 9092
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ClientConfig:
    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "oncelog"
    socket_connection_setup_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """How long one request may take."""
    default_api_timeout_ms: int = 60_000
    """How long one call may take, with all its retries."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    @classmethod
    def of(cls, bootstrap_servers: str | Iterable[str] | Mapping[str, Any], **settings: Any) -> ClientConfig:
        """Raises InvalidConfig."""
        given: dict[str, Any] = {}
        if isinstance(bootstrap_servers, Mapping):
            given.update(bootstrap_servers)
        else:
            given["bootstrap.servers"] = bootstrap_servers
        given.update(settings)
        values = {_field_name(key): value for key, value in given.items()}
        if "bootstrap_servers" not in values:
            raise InvalidConfig(
                'bootstrap.servers is missing: say which brokers to ask first, such as "127.0.0.1:9092"'
            )
        values["bootstrap_servers"] = parse_servers(values["bootstrap_servers"])
        for name, value in values.items():
            if name.endswith("_ms"):
                values[name] = _milliseconds(name, value)
        return cls(**values)


def _field_name(key: str) -> str:
    names = [field.name for field in fields(ClientConfig)]
    name = key.replace(".", "_")
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0].replace('_', '.')}?" if near else ""
    raise InvalidConfig(f"{key} is no setting of this client{hint}")


def _milliseconds(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise InvalidConfig(f"{name.replace('_', '.')} is a number of milliseconds, not {value!r}")
    return number


def parse_servers(servers: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """`"a:9092,b"` or `["a:9092", "b"]`; a host without a port means 9092."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_address(text.strip()) for text in texts if text.strip())
    if not addresses:
        raise InvalidConfig("bootstrap.servers is empty; write HOST:PORT[,HOST:PORT...]")
    return addresses


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)  # no port, or an IPv6 address without brackets
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= MAX_PORT:
        raise InvalidConfig(f"{text!r} is no address of a broker; write HOST:PORT")
    return host, int(port)
