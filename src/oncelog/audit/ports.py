"""Choosing a port for a broker that will be killed and restarted under it."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 32_000)
"""Below the range that systems give to outgoing connections: a client that keeps connecting to a dead broker's port in
that range will one day be given the very port, be connected to itself, and keep the broker from coming back."""

MAX_TRIES = 100

_given: set[int] = set()
"""A port that nobody listens on yet seems to be unused the next time, too."""


def unused_port(host: str = "127.0.0.1") -> int:
    for port in random.sample(PORTS, MAX_TRIES):
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise OSError(f"none of {MAX_TRIES} ports between {PORTS.start} and {PORTS.stop} is free on {host}")
