"""`oncelog doctor`: what is wrong with a data folder, and repairing what can be repaired."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from uuid import uuid4

from oncelog.cli.output import agreed, detail, print_json, say
from oncelog.clock import wall_ms
from oncelog.doctor.checkup import Diagnosis, Kind, check_up, kind_of
from oncelog.doctor.repairs import AcceptLoss, Folder, RebuildMetadata, Repair
from oncelog.errors import OncelogError
from oncelog.log.folder_lock import UNKNOWN_OWNER, FolderInUse, FolderLock
from oncelog.log.inspection import Finding, Severity
from oncelog.log.storage import FileStorage
from oncelog.log.survey import in_words

COLUMNS = ("what is wrong", "at the next start", "what to do")
INDENT = max(map(len, COLUMNS)) + len(": ")

SOUND = 0
DAMAGED = 1

MAX_NAMED = 20
"""Topics that are named one by one."""

UNREAD = "the checksums of records were not read (--deep does)"

EPILOG = """\
Looks at a folder as the start of a broker does, and says of everything that is not as it was written: which file, what
is wrong, what the broker does about it, what you can do. It only reads, unless it is told to repair. No broker may run
on the folder meanwhile.

A "loss" is what the next start refuses to serve; what is "repaired at start" needs nothing from you. A repair never
destroys: what it takes out of use stays beside it as *.damaged.

The exit code is 1 if something is lost (and was not accepted as lost by a repair), or if the folder cannot be checked;
else 0.

examples:
  oncelog doctor ./data                  what is wrong, as a start would find it
  oncelog doctor ./data --deep           reads every record as well, and verifies its checksum
  oncelog doctor ./data --repair         asks before each repair
  oncelog doctor ./data --deep --repair  the same, also for records that only --deep finds damaged
  oncelog doctor ./data --repair --yes   repairs all that can be repaired, accepting what is lost
"""


class NoDataFolder(OncelogError):
    """There is nothing to look at."""


class FolderIsServed(OncelogError):
    """A broker runs on it: what is looked at would change meanwhile."""


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
    # What opening a log would write into a broker's log is told as findings.
    logging.getLogger("oncelog").addHandler(logging.NullHandler())
    with _not_in_use(path, only_looks=not args.repair):
        found = _look(path, args)
        if not args.repair:
            return _report(args, path, found)
        if not (args.json or args.yes):
            _show_findings(path, found)
        done = _repair(path, found, args)
        if done:
            found = _look(path, args)
        elif not (args.json or args.yes):
            return DAMAGED if _losses(found) else SOUND
        return _report(args, path, found, done)


@contextmanager
def _not_in_use(path: str, *, only_looks: bool) -> Iterator[None]:
    try:
        lock = FolderLock(path, only_looks=only_looks)
    except FolderInUse as error:
        who = "a running broker" if error.owner == UNKNOWN_OWNER else f"a running broker (process {error.owner})"
        raise FolderIsServed(f"{path} is in use by {who}: stop it first, then run the doctor again") from None
    try:
        yield
    finally:
        lock.release()


def _look(path: str, args: argparse.Namespace) -> list[Diagnosis]:
    if args.deep and sys.stderr.isatty():
        detail("reading every record; that takes as long as the disk needs to read them ...")
    return list(check_up(FileStorage(), path, deep=args.deep))


def _losses(found: list[Diagnosis]) -> list[Diagnosis]:
    return [each for each in found if each.finding.severity is Severity.LOSS]


def _report(args: argparse.Namespace, path: str, found: list[Diagnosis], done: Sequence[Repair] = ()) -> int:
    is_damaged = bool(_losses(found))
    if args.json:
        told = {"folder": path, "sound": not is_damaged, "findings": [_as_json(each) for each in found]}
        if args.repair:
            told["repaired"] = [_repair_as_json(each) for each in done]
        print_json(told)
    else:
        _show_findings(path, found)
        _show_verdict(args, path, found, done)
    return DAMAGED if is_damaged else SOUND


def _as_json(diagnosis: Diagnosis) -> dict[str, object]:
    finding, repair = diagnosis
    return asdict(finding) | {
        "severity": finding.severity.value,
        "repair": repair.text if repair else None,
        "lost": [each._asdict() for each in finding.lost],
    }


def _repair_as_json(repair: Repair) -> dict[str, object]:
    if isinstance(repair, RebuildMetadata):
        return {"repair": repair.text, "lost": repair.salvaged.lost, "topics": sorted(repair.salvaged.state.topics)}
    if not isinstance(repair, AcceptLoss):
        return {"repair": repair.text}
    lost = [each._asdict() for each in repair.lost]
    return {"repair": repair.text, "partition": str(repair.topic_partition), "lost": lost}


def _show_findings(path: str, found: list[Diagnosis]) -> None:
    for finding, _ in found:
        say(f"{finding.severity.value}: {finding.path.removeprefix(f'{path}/')}")
        for column, text in zip(COLUMNS, _words(finding), strict=True):
            say(f"  {column + ':':<{INDENT}}{text}")


def _show_verdict(args: argparse.Namespace, path: str, found: list[Diagnosis], done: Sequence[Repair]) -> None:
    """The last line, or lines."""
    accepted = [each for each in done if isinstance(each, AcceptLoss)]
    for each in accepted:
        say(f"{each.topic_partition}: {in_words(each.lost)} lost, as accepted")
    rebuilt = [each for each in done if isinstance(each, RebuildMetadata)]
    for line in (line for repair in rebuilt for line in _rebuilt_in_words(repair)):
        say(line)
    deep = " --deep" if args.deep else ""
    lost = _losses(found)
    if any(each.repair is not None for each in lost):
        say(f"`oncelog doctor {path}{deep} --repair` goes through what can be repaired")
    if lost:
        return
    if kind_of(FileStorage(), path) is Kind.EMPTY:
        say(f"{path} is {Kind.EMPTY.value}")
    elif accepted:
        say("a broker can start on this folder, and serves what is left")
    elif rebuilt:
        say("a broker can start on this folder")
    elif found:
        say(
            "nothing else is wrong: a broker can start on this folder"
            if args.deep
            else f"a broker can start on this folder; {UNREAD}"
        )
    elif args.deep:
        say(f"{path} is sound: nothing is damaged or missing")
    else:
        say(f"{path} is sound, as far as a start looks; {UNREAD}")


def _rebuilt_in_words(repair: RebuildMetadata) -> list[str]:
    topics = sorted(repair.salvaged.state.topics)
    named = ", ".join(topics[:MAX_NAMED]) + (" ..." if len(topics) > MAX_NAMED else "")
    return [
        f"the metadata is rebuilt, with {len(topics)} topic{'' if len(topics) == 1 else 's'}"
        + (f": {named}" if topics else ""),
        "no record of any topic was changed; what the lost metadata said last (topics without records, topic settings, "
        "quotas) may be missing: compare `oncelog topics describe` with what you expect",
    ]


def _words(finding: Finding) -> tuple[str, str, str]:
    return finding.problem, finding.consequence, finding.remedy


# --- repairing ---


def _repair(path: str, found: list[Diagnosis], args: argparse.Namespace) -> list[Repair]:
    """What was done."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    folder = Folder(FileStorage(), path, stamp, wall_ms(), uuid4)
    repairs: list[tuple[str, Repair]] = []
    for each in found:
        repair = each.repair
        if repair is not None and all(repair != other for _, other in repairs):
            repairs.append((each.finding.path, repair))
    done = []
    for where, repair in repairs:
        if not args.yes and not _agreed(f"{where}: {repair.text}"):
            continue
        for line in repair.perform(folder):
            detail(f"{where}: {line}")
        done.append(repair)
    return done


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise OncelogError("--repair asks before each repair, which needs a terminal; add --yes to repair all")
    return agreed(question)
