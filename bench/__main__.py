"""`python -m bench [ROW...] [--quick]`: one module of `bench.rows` per row of the table.

With `--against COMMIT` the peer is an older commit of oncelog itself (`bench.against`)."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from bench.against.run import run as run_against
from bench.against.trials import TRIALS
from bench.figures import Figure
from bench.first_touch import used_memory
from bench.report import print_table, write_json, write_markdown
from bench.scale import FULL, QUICK, Scale
from tests.support.parts import PartMissingError

ROWS = (
    *("start", "memory", "produce_small", "produce_large", "consume", "latency", "recovery", "crowd", "attack"),
    *("producer_send", "producer_async", "producer_latency", "producer_compression", "producer_memory"),
    *("producer_partitions", "consumer_read", "consumer_memory", "groups", "effects"),
    *("transactions", "transactional_ids", "process"),
    *("growth_start", "growth_produce", "growth_stall", "growth_consumer", "growth_tail"),
    *("spark_source", "spark_sink", "spark_latency", "spark_table", "spark_growth"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="oncelog and its peers in one run")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which rows (default: all): {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that it works; writes no results")
    parser.add_argument("--against", metavar="COMMIT", help="whether the present checkout is slower than that commit")
    args = parser.parse_args()
    known = tuple(TRIALS) if args.against else ROWS
    unknown = [row for row in args.rows if row not in known]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(known)}")
    if args.against:
        return run_against(args.against, args.rows or known, say, quick=args.quick)
    try:
        figures = run(args.rows or ROWS, quick=args.quick)
    except PartMissingError as reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 1
    print_table(figures)
    return 1 if any(figure.verdict == "MISSED" for figure in figures) and not args.quick else 0


def run(rows: list[str] | tuple[str, ...], *, quick: bool) -> list[Figure]:
    if quick:
        return [figure for row in rows for figure in _measure(row, QUICK)]
    figures: list[Figure] = []
    with used_memory(say):
        for row in rows:
            measured = _measure(row, FULL)
            write_json(row, measured)
            figures += measured
    write_markdown(ROWS)
    return figures


def _measure(row: str, scale: Scale) -> list[Figure]:
    measured: list[Figure] = import_module(f"bench.rows.{row}").measure(scale, say)
    return measured


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
