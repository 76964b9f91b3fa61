"""The first question to a cluster: a broker that is being started again is waited for, though not for long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from oncelog.admin.admin import Admin
from oncelog.client.blocking import BrokersUnreachable

REACH_S: Final = 15.0
RETRY_S: Final = 0.1


def reached(settings: Mapping[str, str]) -> Admin:
    """An admin that a broker has answered. Raises BrokersUnreachable if none does in time."""
    admin = Admin(settings)
    give_up = time.monotonic() + REACH_S
    while True:
        try:
            admin.describe_cluster()
        except BrokersUnreachable:
            if time.monotonic() > give_up:
                admin.close()
                raise
            time.sleep(RETRY_S)
        else:
            return admin
