"""Listeners as Kafka writes them, `NAME://host:port`, and as people write them, `host:port`.

The files of KRaft brokers name the controller's listeners as well, and say elsewhere which those are and which protocol
a listener's name stands for: `context` is all settings of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from oncelog.broker.config.definition import Value
from oncelog.errors import InvalidConfig
from oncelog.named_tuple import NamedTuple

LISTENER = re.compile(r"(?:([A-Za-z0-9_.-]+)://)?(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/]*)):(\d{1,5})", re.ASCII)
PLAINTEXT = "PLAINTEXT"
EVERY_INTERFACE = "0.0.0.0"
MAX_PORT = 65535


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> tuple[str, Endpoint]:
    """The listener's name and where it is; a text without a name is a PLAINTEXT listener."""
    match = LISTENER.fullmatch(text)
    if match is None:
        raise InvalidConfig(f"{text} is not a listener; write host:port or PLAINTEXT://host:port")
    if int(match[4]) > MAX_PORT:
        raise InvalidConfig(f"{text}: port {match[4]} is out of range (0 to {MAX_PORT})")
    return match[1] or PLAINTEXT, Endpoint(match[2] or match[3], int(match[4]))


def parse_listeners(value: Value | None, context: Mapping[str, str]) -> Endpoint:
    endpoint = _the_one("listeners", value, context)
    return endpoint if endpoint.host else Endpoint(EVERY_INTERFACE, endpoint.port)


def parse_advertised(value: Value | None, context: Mapping[str, str]) -> Endpoint | None:
    if not value:
        return None
    endpoint = _the_one("advertised.listeners", value, context)
    if endpoint.host in ("", EVERY_INTERFACE, "::"):
        raise InvalidConfig(f"advertised.listeners cannot be {endpoint}: clients need an address that they can reach")
    return endpoint


def _the_one(name: str, value: Value | None, context: Mapping[str, str]) -> Endpoint:
    """Of the listeners named, the one for clients: those of the controller have no part in this broker."""
    assert isinstance(value, tuple)
    controllers = {one.strip() for one in context.get("controller.listener.names", "").split(",")}
    named = [parse_endpoint(text) for text in value]
    clients = [(label, endpoint) for label, endpoint in named if label not in controllers]
    if len(clients) != 1:
        raise InvalidConfig(f"{name} must name one listener for clients, and names {len(clients)}: {','.join(value)}")
    label, endpoint = clients[0]
    protocol = _protocols(context).get(label, label)
    if protocol != PLAINTEXT:
        raise InvalidConfig(f"{name} asks for {protocol}, which is not served yet; only PLAINTEXT is")
    return endpoint


def _protocols(context: Mapping[str, str]) -> dict[str, str]:
    pairs = [pair.strip().partition(":") for pair in context.get("listener.security.protocol.map", "").split(",")]
    return {name: protocol for name, _, protocol in pairs if protocol}
