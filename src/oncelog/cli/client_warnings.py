"""What our clients log while a command runs, told on stderr: brokers that cannot be reached, members that are lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.cli.output import note

LOGGER = "oncelog"


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def told() -> Iterator[None]:
    """While the block runs, warnings are notes. Without it Python would print them as they are, escape characters and
    all."""
    handler = _Notes(logging.WARNING)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
