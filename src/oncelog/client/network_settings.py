"""How a client connects, waits and gives up: what a `Network` is told once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ConnectionConfig(Protocol):
    """What the configs of producers and consumers say about connections."""

    @property
    def client_id(self) -> str: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def socket_connection_setup_timeout_ms(self) -> int: ...
    @property
    def socket_connection_setup_timeout_max_ms(self) -> int: ...
    @property
    def reconnect_backoff_ms(self) -> int: ...
    @property
    def reconnect_backoff_max_ms(self) -> int: ...
    @property
    def connections_max_idle_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    client_id: str | None
    max_in_flight: int
    request_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    """Negative for never."""
    max_answer_bytes: int

    @classmethod
    def of(cls, config: ConnectionConfig, *, max_in_flight: int, max_answer_bytes: int) -> NetworkSettings:
        return cls(
            client_id=config.client_id,
            max_in_flight=max_in_flight,
            request_timeout_ms=config.request_timeout_ms,
            socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            connections_max_idle_ms=config.connections_max_idle_ms,
            max_answer_bytes=max_answer_bytes,
        )
