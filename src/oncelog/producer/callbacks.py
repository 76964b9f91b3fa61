"""Tells users what became of their records. A callback that raises is logged, and breaks nothing."""

from __future__ import annotations

import logging

from oncelog.client.batch import ProducerBatch

logger = logging.getLogger(__name__)


def run_callbacks(batch: ProducerBatch) -> None:
    """Of one partition's batches in their order, since the sender settles them so."""
    batch.run_callbacks(log_raised)


def log_raised() -> None:
    logger.exception("a delivery callback raised; the record's fate is not changed by that")
