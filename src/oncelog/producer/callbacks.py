"""Tells users what became of their records. A callback that raises is logged, and breaks nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from oncelog.client.batch import ProducerBatch

Metadata = TypeVar("Metadata")

logger = logging.getLogger(__name__)


def run_callbacks(batch: ProducerBatch) -> None:
    """Of one partition's batches in their order, since the sender settles them so."""
    batch.run_callbacks(log_raised)


def tell(
    on_delivery: Callable[[Metadata | None, Exception | None], Any], metadata: Metadata | None, error: Exception | None
) -> None:
    """Of one record, or one table."""
    try:
        on_delivery(metadata, error)
    except BaseException:  # even an exit: it would end the sender, and not the program
        log_raised()


def log_raised() -> None:
    logger.exception("a delivery callback raised; the record's fate is not changed by that")
