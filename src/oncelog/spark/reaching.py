"""The first question to a cluster: a broker that is being started again is waited for, though not for long."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from oncelog.admin.admin import Admin
from oncelog.client.blocking import BrokersUnreachable

logger = logging.getLogger(__name__)

REACH_S: Final = 15.0
TELL_S: Final = 5.0
"""After this time without an answer it is said what is waited for."""
RETRY_S: Final = 0.1


def reached(settings: Mapping[str, str]) -> Admin:
    """An admin that a broker has answered. Raises BrokersUnreachable if none does in time."""
    admin = Admin(settings)
    began = time.monotonic()
    is_told = False
    while True:
        try:
            admin.describe_cluster()
        except BrokersUnreachable as error:
            waited_s = time.monotonic() - began
            if waited_s > REACH_S:
                admin.close()
                raise
            if not is_told and waited_s >= TELL_S:
                logger.warning("%s; trying again for up to %.0f s", error, REACH_S - waited_s)
                is_told = True
            time.sleep(RETRY_S)
        else:
            return admin
