"""Tells users what became of their records. A callback that raises is logged, and breaks nothing."""

from __future__ import annotations

import logging

from oncelog.client.batch import ProducerBatch

logger = logging.getLogger(__name__)


def run_callbacks(batch: ProducerBatch) -> None:
    """In the order of the records; of one partition's batches in theirs, since the sender settles them so."""
    delivery = batch.delivery
    error = delivery.error
    for future in batch.futures:
        on_delivery = future.on_delivery
        assert on_delivery is not None
        try:
            if error is None:
                on_delivery(future.metadata_in(delivery), None)
            else:
                on_delivery(None, error)
        except Exception:
            logger.exception("a delivery callback raised; the record's fate is not changed by that")
    batch.futures = []
