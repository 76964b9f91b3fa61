"""What a producer that is closed says of a transaction whose end it did not hear."""

from __future__ import annotations

import logging
from collections.abc import Collection

from oncelog.client.transaction.command import Kind
from oncelog.client.transaction.model import TransactionSettings

_log = logging.getLogger(__name__)


def tell_unheard_end(asked: Collection[Kind], settings: TransactionSettings, why: str) -> None:
    name = settings.transactional_id
    if Kind.COMMIT in asked:
        _log.warning(
            "%s: the producer was closed before it heard whether its transaction is committed: %s. It is if its"
            " coordinator was reached, and will be aborted if not: `oncelog transactions describe %s` tells",
            name,
            why,
            name,
        )
    elif Kind.ABORT in asked:
        _log.warning(
            "%s: the producer was closed, and its transaction could not be aborted now: %s. Its coordinator aborts it"
            " after transaction.timeout.ms (%d), or when a producer with this transactional id begins",
            name,
            why,
            settings.transaction_timeout_ms,
        )
