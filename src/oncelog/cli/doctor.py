"""`oncelog doctor`: what is wrong with a data folder, and repairing what can be repaired."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from uuid import uuid4

from oncelog.cli.output import print_json, print_table
from oncelog.clock import wall_ms
from oncelog.doctor.checkup import Diagnosis, Kind, check_up, kind_of
from oncelog.doctor.repairs import Folder, Repair
from oncelog.errors import OncelogError
from oncelog.log.inspection import Finding, Severity
from oncelog.log.storage import FileStorage

COLUMNS = ("what is wrong", "at the next start", "what to do")
INDENT = max(map(len, COLUMNS)) + len(": ")

SOUND = 0
DAMAGED = 1

EPILOG = """\
Looks at a folder as the start of a broker does, and says of everything that is not as it was written: which file, what
is wrong, what the broker does about it, what you can do. It only reads, unless it is told to repair. No broker may run
on the folder meanwhile.

A "loss" is what the next start refuses to serve; what is "repaired at start" needs nothing from you. A repair never
destroys: what it takes out of use stays beside it as *.damaged.

The exit code is 0 for a sound folder, 1 if something is lost or damaged.

examples:
  oncelog doctor ./data                  what is wrong, as a start would find it
  oncelog doctor ./data --deep           reads every record as well, and verifies its checksum
  oncelog doctor ./data --repair         asks before each repair
  oncelog doctor ./data --repair --yes   repairs all that can be repaired, accepting what is lost
"""


class NoDataFolder(OncelogError):
    """There is nothing to look at."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check a data folder, and repair what can be repaired",
        description="Check a data folder: what is damaged, what that means, what can be done.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", help="the data folder of a broker that does not run (log.dirs)")
    parser.add_argument("--deep", action="store_true", help="verify the checksum of every record")
    parser.add_argument("--repair", action="store_true", help="repair what can be repaired, asking before each repair")
    parser.add_argument("--yes", action="store_true", help="with --repair: do not ask")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    path = args.directory.rstrip("/") or "/"
    if not os.path.isdir(path):
        raise NoDataFolder(f"{path} is not a folder")
    kind = kind_of(FileStorage(), path)
    if kind is Kind.FOREIGN:
        raise NoDataFolder(f"{path} is {kind.value}")
    if kind is Kind.EMPTY:
        return _report(args, path, [])
    with _not_in_use(path):
        found = _look(path, args)
        if args.repair and not (args.json or args.yes):
            _show(path, found)
        if args.repair and _repair(path, found, args):
            found = _look(path, args)
        return _report(args, path, found)


@contextmanager
def _not_in_use(path: str) -> Iterator[None]:
    from oncelog.broker.server import data_folder_lock  # heavy, and of no use to --help

    with data_folder_lock(path):
        yield


def _look(path: str, args: argparse.Namespace) -> list[Diagnosis]:
    if args.deep and sys.stderr.isatty():
        print("reading every record; that takes as long as the disk needs to read them ...", file=sys.stderr)
    return list(check_up(FileStorage(), path, deep=args.deep))


def _report(args: argparse.Namespace, path: str, found: list[Diagnosis]) -> int:
    is_damaged = any(each.finding.severity is Severity.LOSS for each in found)
    if args.json:
        print_json({"folder": path, "sound": not is_damaged, "findings": [_as_json(each) for each in found]})
    else:
        _show(path, found)
    return DAMAGED if is_damaged else SOUND


def _as_json(diagnosis: Diagnosis) -> dict[str, object]:
    finding = asdict(diagnosis.finding)
    repair = diagnosis.repair
    return finding | {"severity": diagnosis.finding.severity.value, "repair": repair.text if repair else None}


def _show(path: str, found: list[Diagnosis]) -> None:
    if not found:
        empty = kind_of(FileStorage(), path) is Kind.EMPTY
        print(f"{path} is {Kind.EMPTY.value if empty else 'sound: nothing is damaged or missing'}")
        return
    rows = [(finding.severity.value, finding.path.removeprefix(f"{path}/"), *_words(finding)) for finding, _ in found]
    if sys.stdout.isatty():
        print_table(("severity", "where", *COLUMNS), rows)
    else:
        for severity, where, *words in rows:
            print(f"{severity}: {where}")
            for column, text in zip(COLUMNS, words, strict=True):
                print(f"  {column + ':':<{INDENT}}{text}")
    lost = [each for each in found if each.finding.severity is Severity.LOSS]
    if not lost:
        print("nothing is lost: a broker can start on this folder")
    elif any(each.repair is not None for each in lost):
        print(f"`oncelog doctor {path} --repair` goes through what can be repaired")


def _words(finding: Finding) -> tuple[str, str, str]:
    return finding.problem, finding.consequence, finding.remedy


# --- repairing ---


def _repair(path: str, found: list[Diagnosis], args: argparse.Namespace) -> bool:
    """Whether anything was done."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    folder = Folder(FileStorage(), path, stamp, wall_ms(), uuid4)
    repairs: list[tuple[str, Repair]] = []
    for each in found:
        repair = each.repair
        is_new = all(repair != other for _, other in repairs)
        if repair is not None and is_new and each.finding.severity is Severity.LOSS:
            repairs.append((each.finding.path, repair))
    for where, repair in repairs:
        if not args.yes and not _agreed(f"{where}: {repair.text}?"):
            continue
        for line in repair.perform(folder):
            print(f"{where}: {line}", file=sys.stderr)
    return bool(repairs)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise OncelogError("--repair asks before each repair, and there is nobody to ask; add --yes to repair all")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
