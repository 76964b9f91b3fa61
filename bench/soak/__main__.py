"""The soak as a command: starts the broker, watches it, draws. `bench.soak` says what it shows and how to run it."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.soak.load import BROKER_CONFIG, Load
from bench.soak.picture import draw
from bench.soak.samples import Sample, Sampler
from bench.soak.trend import LONG_ENOUGH_S, trends
from tests.support.broker import OncelogBroker

PERIOD_S = 5.0
TOLD_EVERY_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="a broker's memory under mixed load")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--out", type=Path, help="the picture (SVG)")
    parser.add_argument("--samples", type=Path, help="the samples, as lines of JSON (default: beside the picture)")
    parser.add_argument("--redraw", type=Path, metavar="SAMPLES", help="run nothing, draw what these lines say")
    args = parser.parse_args()
    if args.redraw is not None:
        lines = args.redraw.read_text().splitlines()
        return conclude([Sample(**json.loads(line)) for line in lines], args.out)
    lines_to = args.samples or (args.out or Path(tempfile.gettempdir()) / "soak.svg").with_suffix(".jsonl")
    directory = Path(tempfile.mkdtemp(prefix="oncelog-soak-"))
    try:
        return conclude(soak(args.minutes * 60, directory, lines_to), args.out)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def soak(duration_s: float, directory: Path, lines_to: Path) -> list[Sample]:
    """Samples until the time is up or somebody interrupts."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    samples: list[Sample] = []
    with OncelogBroker(directory, BROKER_CONFIG) as broker, open(lines_to, "w") as lines:
        say(f"broker {broker.pid} at {broker.bootstrap}; samples go to {lines_to}")
        load = Load(broker, say)
        sampler = Sampler(broker.pid, broker.data_dir)
        begun_s, told_s = time.monotonic(), 0.0
        load.start()
        while not stopped.wait(PERIOD_S) and broker.running:
            sample = sampler.take(time.monotonic() - begun_s, load.snapshot(), sum(load.failures.values()))
            samples.append(sample)
            print(json.dumps(sample.as_json()), file=lines, flush=True)
            if sample.at_s >= told_s:
                told_s = sample.at_s + TOLD_EVERY_S
                say(words(sample))
            if sample.at_s >= duration_s:
                break
        if not broker.running:
            say(f"the broker ended:\n{broker.log[-4000:]}")
        load.stop()
        for name, count in load.failures.items():
            say(f"{name} failed {count} times")
    return samples


def words(sample: Sample) -> str:
    minutes, seconds = divmod(int(sample.at_s), 60)
    used = ", ".join(f"{sample.counts.get(name, 0):,} {name}" for name in ("producer ids", "groups", "topics"))
    return (
        f"{minutes:3d}:{seconds:02d}  {sample.rss_mb:6.1f} MB  {sample.descriptors} descriptors  "
        f"{sample.threads} threads  disk {sample.disk_mb:.0f} MB  {sample.cpu:.0%} of a core  ({used})"
    )


def conclude(samples: Sequence[Sample], out: Path | None) -> int:
    found = trends(samples)
    if not found:
        say("too few samples to tell anything")
        return 1
    if out is not None:
        out.write_text(draw(samples, found))
        say(f"the picture is in {out}")
    if samples[-1].at_s < LONG_ENOUGH_S:
        say(f"a run of {samples[-1].at_s / 60:.0f} minutes: too short to speak of hours; its second half says")
    for trend in found:
        print(f"{'flat ' if trend.is_flat else 'RISES'}  {trend}")
    if samples[-1].failures:
        print(f"{samples[-1].failures} chores FAILED")
    return 0 if all(trend.is_flat for trend in found) and not samples[-1].failures else 1


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
