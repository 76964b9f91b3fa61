"""What the blocking client and `Admin` may be told: Kafka's keys, written with dots or with underscores.

`ClientConfig.of("host:9092", client_id="me")` says the same as
`ClientConfig.of({"bootstrap.servers": "host:9092", "client.id": "me"})`. A key that does not exist is an error that
names the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from oncelog.client.settings import MAX_INT, Milliseconds, Servers, Text, milliseconds, parse_servers, read_settings

__all__ = ["ClientConfig", "parse_servers"]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    bootstrap_servers: Servers
    client_id: Text = "oncelog"
    socket_connection_setup_timeout_ms: Milliseconds = 10_000
    request_timeout_ms: Annotated[int, milliseconds(high=MAX_INT)] = 30_000
    """How long one request may take."""
    default_api_timeout_ms: Milliseconds = 60_000
    """How long one call may take, with all its retries."""
    retry_backoff_ms: Milliseconds = 100
    retry_backoff_max_ms: Milliseconds = 1_000

    @classmethod
    def of(cls, bootstrap_servers: str | Iterable[str] | Mapping[str, Any], **settings: Any) -> ClientConfig:
        """Raises InvalidConfig."""
        return cls(**read_settings(cls, bootstrap_servers, settings))
