"""What a function of the user's may return, and how it is sent.

An output is `(key, value)`, a value alone, a `ProducerRecord` (which may name another topic, a partition, headers), or
a `ConsumerRecord`, which goes on as it is. Key and value are whatever the producer's serializers take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oncelog.client.records import ProducerRecord
from oncelog.processing.job import FeedsItself
from oncelog.records.kernel import ConsumerRecord

ACCEPTED = "a value, (key, value), an oncelog.ProducerRecord or an oncelog.ConsumerRecord"
DEAD = "oncelog.dead."
"""How the headers of a dead letter begin, as those of `oncelog.once` do."""
MAX_REASON = 4_000

Send = Callable[..., Any]


def listed(returned: Any) -> list[Any]:
    """What the function returned, or yields, from beginning to end: nothing is sent of what breaks off half way."""
    if isinstance(returned, list):
        return returned
    if returned is None or isinstance(returned, str | bytes | tuple | dict) or not isinstance(returned, Iterable):
        raise TypeError(
            f"the function returned {type(returned).__name__}; it returns (or yields) any number of outputs: a list of"
            f" which each is {ACCEPTED}; an empty one sends nothing"
        )
    return list(returned)


def checked_table(returned: Any) -> Any:
    """A table, or None for no rows."""
    if returned is not None and not hasattr(returned, "num_rows"):
        raise TypeError(f"the function returned {type(returned).__name__}; with tables=True it returns a pyarrow.Table")
    return returned


def send_all(send: Send, target: str | None, outputs: Iterable[Any], reads: Callable[[str], bool]) -> None:
    """`reads` says whether a topic is a source, to which nothing may be sent."""
    for output in outputs:
        kind = type(output)
        if target is None and kind is not ProducerRecord:
            raise TypeError(f"{_shown(output)} names no topic, and process() was given no target")
        if kind is bytes or kind is str:
            send(target, output)
        elif kind is tuple and len(output) == 2:
            send(target, output[1], output[0])
        elif kind is ProducerRecord:
            topic, value, key, partition, headers, timestamp_ms = output
            if topic and topic != target and reads(topic):
                raise FeedsItself(f"{_shown(output)} goes to a topic that process() reads: it would not end")
            send(topic or target, value, key, headers, partition, timestamp_ms)
        elif kind is ConsumerRecord:
            send(target, output.value, output.key, output.headers, None, output.timestamp_ms)
        elif output is None or kind is tuple:
            raise TypeError(f"{_shown(output)} is not an output: {ACCEPTED} is")
        else:
            send(target, output)


def _shown(output: Any) -> str:
    text = repr(output)
    return text if len(text) <= 100 else text[:97] + "..."


def dead_letter(topic: str, single: Any, error: BaseException, group: str) -> ProducerRecord:
    """The record that could not be processed, as it was, with headers that tell where it came from and why it is
    here."""
    record = _fields_of(single)
    about = {
        "id": f"{group}/{record['topic']}/{record['partition']}/{record['offset']}",
        "scope": group,
        "topic": record["topic"],
        "partition": record["partition"],
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "reason": f"{type(error).__name__}: {error}".replace("\0", "")[:MAX_REASON],
    }
    headers = [*record["headers"], *((DEAD + name, str(content).encode()) for name, content in about.items())]
    return ProducerRecord(topic, record["value"], record["key"], None, headers, None)


def place_of(single: Any) -> str:
    """Where a list of one record, or a table of one row, comes from."""
    record = _fields_of(single)
    return f"{record['topic']}-{record['partition']} at offset {record['offset']}"


def _fields_of(single: Any) -> dict[str, Any]:
    """Of a list of one record, or a table of one row."""
    if isinstance(single, list):
        (record,) = single
        names = ("topic", "partition", "offset", "key", "value", "headers")
        return {**{name: getattr(record, name) for name in names}, "timestamp": record.timestamp_ms}
    (row,) = single.to_pylist()
    headers = [(header["key"], header["value"]) for header in row["headers"]]
    return {**row, "headers": headers, "timestamp": int(row["timestamp"].timestamp() * 1000)}
