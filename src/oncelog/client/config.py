"""What the blocking client and `Admin` may be told: Kafka's keys, written with dots or with underscores.

`ClientConfig.of("host:9092", client_id="me")` says the same as
`ClientConfig.of({"bootstrap.servers": "host:9092", "client.id": "me"})`. A key that does not exist is an error that
says what to do instead, or names the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from oncelog.client.settings import (
    MAX_INT,
    Milliseconds,
    SecurityProtocolKind,
    Servers,
    Text,
    milliseconds,
    parse_servers,
    read_settings,
)

__all__ = ["ClientConfig", "parse_servers"]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    bootstrap_servers: Servers
    """The brokers to ask first; they name all others. Without a port, 9092 is meant."""
    client_id: Text = "oncelog"
    """The name under which brokers log, count and throttle this client."""
    socket_connection_setup_timeout_ms: Milliseconds = 10_000
    """How long one connection may take."""
    request_timeout_ms: Annotated[int, milliseconds(high=MAX_INT)] = 30_000
    """How long one request may take."""
    default_api_timeout_ms: Milliseconds = 60_000
    """How long one call may take, with all its retries."""
    retry_backoff_ms: Milliseconds = 100
    """The pause before the first retry; it doubles."""
    retry_backoff_max_ms: Milliseconds = 1_000
    """The longest pause between two retries."""
    security_protocol: Annotated[str, SecurityProtocolKind()] = "PLAINTEXT"
    """TLS and SASL are not supported yet."""

    @classmethod
    def of(cls, bootstrap_servers: str | Iterable[str] | Mapping[str, Any], **settings: Any) -> ClientConfig:
        """Raises InvalidConfig."""
        return cls(**read_settings(cls, bootstrap_servers, settings, client="admin"))
