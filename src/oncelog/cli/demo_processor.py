"""A process of the demo: makes payments of orders with `oncelog.process`, in transactions.

A trap may be set for it: it is caught when its results are stored and their transaction is not committed, and there it
is killed. The process stops when its standard input ends, which also happens when the demo is killed.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncelog.cli.demo_member import SESSION_TIMEOUT_MS, when_input_ends
from oncelog.cli.demo_trap import Trap
from oncelog.client.records import ProducerRecord
from oncelog.processing.threads import process
from oncelog.records.kernel import ConsumerRecord

GROUP = "processors"
BATCH_RECORDS = 500


class _Trapped:
    """An interceptor that never returns from a trap: the records are stored, and nobody ends their transaction."""

    def __init__(self, trap: Trap, is_leaving: threading.Event) -> None:
        self._trap = trap
        self._is_leaving = is_leaving

    def on_acknowledgement(self, metadata: Any, error: Exception | None) -> None:
        if error is None and self._trap.step_in(os.getpid()):
            self._is_leaving.wait()


def paid(target: str, orders: list[ConsumerRecord]) -> Iterator[ProducerRecord]:
    """The same partition for the same order: payments keep the order of the orders."""
    for order in orders:
        yield ProducerRecord(target, order.value, order.key, order.partition, order.headers)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int)
    parser.add_argument("bootstrap_servers")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("kill_trap", type=Path)
    args = parser.parse_args(words)
    is_leaving = threading.Event()
    when_input_ends(is_leaving.set)
    process(
        args.source,
        lambda orders: paid(args.target, orders),
        bootstrap_servers=args.bootstrap_servers,
        group=GROUP,
        transactional_id=f"processor-{args.number}",
        batch_records=BATCH_RECORDS,
        stop=is_leaving,
        consumer={"session_timeout_ms": SESSION_TIMEOUT_MS},
        producer={"interceptors": [_Trapped(Trap(args.kill_trap), is_leaving)]},
    )


if __name__ == "__main__":
    main()
