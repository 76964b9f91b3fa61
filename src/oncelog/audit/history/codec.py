"""The lines of a history: JSON, one file for one process. Opens no file.

The first line names the process. An operation begins on one line and ends on another; each line adds what is known by
then, and is written before the process acts on it. So a file that a killed process left behind tells all it had done:

    {"process": "processor 3"}
    {"begin": 1029, "transaction": true, "polls": [["orders", 0, [17, 18], ["a", "b"]]]}
    {"sends": [["bills", 1, ["a.3", "b.3"]]]}
    {"commit": true, "acks": [[40, 41]], "offset_commits": [["billing", "orders", 0, 19]]}
    {"end": 1094, "outcome": "ok"}

`acks` has the offsets of each entry of `sends`, in the same order. An operation that never ended is unknown, except for
a transaction that nobody asked to commit (no `commit`): that one never will be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from oncelog.audit.history.model import GroupOffset, Operation, Outcome, Records
from oncelog.errors import OncelogError
from oncelog.types import NO_OFFSET, TopicPartition

LISTS = ("moved", "polls", "sends", "acks", "offset_commits", "offset_reads", "drained")


class HistoryDamaged(OncelogError):
    """A line that is no line of a history, and not the last one of a process that was killed."""


def encode_line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def plain_polls(polls: Iterable[Records]) -> list[list[object]]:
    return [[*one.partition, list(one.offsets), list(one.values)] for one in polls]


def plain_sends(sends: Iterable[Records]) -> list[list[object]]:
    return [[*one.partition, list(one.values)] for one in sends]


def plain_group_offsets(offsets: Iterable[GroupOffset]) -> list[list[object]]:
    return [[group, *partition, offset] for group, partition, offset in offsets]


def decode_history(lines: Iterable[bytes]) -> Iterator[Operation]:
    """The operations of one process. The last line may be torn: what it would have said was not done."""
    process: str | None = None
    number = 0
    current: dict[str, Any] | None = None
    for fields in _decode_lines(lines):
        if process is None:
            process = _name(fields)
            continue
        if "begin" in fields:
            if current is not None:
                yield _operation(process, number, current)
            current, number = {}, number + 1
        if current is None:
            raise HistoryDamaged(f"{process}: {str(fields)[:200]} belongs to no operation")
        _merge(current, fields)
        if "end" in fields:
            yield _operation(process, number, current)
            current = None
    if process is not None and current is not None:
        yield _operation(process, number, current)


def _decode_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    torn: bytes | None = None
    for line in lines:
        if torn is not None:
            raise HistoryDamaged(f"a line in the middle is torn: {torn[:200]!r}")
        try:
            fields = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            fields = None
        if isinstance(fields, dict):
            yield fields
        else:
            torn = line


def _name(fields: Mapping[str, Any]) -> str:
    try:
        return str(fields["process"])
    except KeyError:
        raise HistoryDamaged(f"the first line should name the process, not say {str(fields)[:200]}") from None


def _merge(current: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name in LISTS:
            current.setdefault(name, []).extend(value)
        else:
            current[name] = value


def _operation(process: str, number: int, fields: Mapping[str, Any]) -> Operation:
    try:
        return Operation(
            process=process,
            number=number,
            invoked=fields["begin"],
            completed=fields.get("end"),
            outcome=_outcome(fields),
            is_transaction=fields.get("transaction", False),
            reads_committed=fields.get("reads_committed", True),
            moved=_partitions(fields.get("moved", ())),
            polls=[Records(TopicPartition(*place), values, at) for *place, at, values in fields.get("polls", ())],
            sends=_sends(fields.get("sends", ()), fields.get("acks", ())),
            offset_commits=_group_offsets(fields.get("offset_commits", ())),
            offset_reads=_group_offsets(fields.get("offset_reads", ())),
            drained=_partitions(fields.get("drained", ())),
        )
    except (TypeError, ValueError) as error:
        raise HistoryDamaged(f"operation {number} of {process} cannot be understood: {error}") from error


def _outcome(fields: Mapping[str, Any]) -> Outcome:
    if "outcome" in fields:
        return Outcome(fields["outcome"])
    is_never_committed = fields.get("transaction", False) and not fields.get("commit", False)
    return Outcome.FAILED if is_never_committed else Outcome.UNKNOWN


def _sends(sends: Sequence[Any], acks: Sequence[list[int]]) -> list[Records]:
    found = []
    for entry, (topic, index, values) in enumerate(sends):
        told = acks[entry] if entry < len(acks) else []
        offsets = told + [NO_OFFSET] * (len(values) - len(told))
        found.append(Records(TopicPartition(topic, index), values, offsets))
    return found


def _partitions(plain: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, index in plain]


def _group_offsets(plain: Iterable[Any]) -> list[GroupOffset]:
    return [GroupOffset(group, TopicPartition(topic, index), offset) for group, topic, index, offset in plain]
