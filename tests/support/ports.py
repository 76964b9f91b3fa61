"""Ports for servers that find out their number before they listen, or that come back to it later."""

from __future__ import annotations

import os
import random
import re
import socket
from collections import deque

from oncelog.audit.ports import PORTS

WORKERS = 8
"""Workers of pytest-xdist that never meet: each has ports of its own."""

_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
_own = deque(random.SystemRandom().sample(PORTS[_worker % WORKERS :: WORKERS], len(PORTS) // WORKERS))


def unused_port(host: str = "127.0.0.1") -> int:
    """One that nobody uses and that this process does not give out again before all others, below those that systems
    choose by themselves: no connection and no other server can take it meanwhile."""
    for _ in range(len(_own)):
        port = _own[0]
        _own.rotate(-1)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port
    raise OSError(f"no port between {PORTS.start} and {PORTS.stop} is free on {host}")


_kept: list[socket.socket] = []


def refusing_port(host: str = "127.0.0.1") -> int:
    """Where connections are refused, and where nobody else will ever listen: it stays taken."""
    keeper = socket.socket()
    keeper.bind((host, 0))
    _kept.append(keeper)
    port: int = keeper.getsockname()[1]
    return port
