"""What users hand to the calls of clients, checked where it comes in: what Kafka's Python users pass is taken, and
everything else is refused in a sentence that says what is wanted, before anything is done.

A wrong type is a TypeError, a wrong value a ValueError. Settings are not judged here (`settings.py`), nor what is in a
record (`record_checks.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.controller.topic_names import check_topic_name
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import IsolationLevel, TopicPartition

FOREVER_S = 10.0 * 365 * 24 * 3600
"""What waiting without end comes to: more than anybody waits, and less than any clock or lock overflows at."""
WITHOUT_END = -1
"""librdkafka's word for it."""

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
SHOWN_CHARACTERS = 80

_SECONDS = "a number of seconds"
_PARTITION = 'a partition is a TopicPartition or a pair of topic and number, such as ("orders", 0)'
_OFFSET = "an offset is a whole number, or an OffsetAndMetadata"

PartitionInput = TopicPartition | tuple[str, int]
Partitions = PartitionInput | Iterable[PartitionInput]
"""One, or several as a list."""
OffsetsInput = (
    ConsumerRecord
    | Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""What to commit: the next offset of each partition, or the last record that was processed."""
Topics = str | Iterable[str] | re.Pattern[str]


def shown(given: object) -> str:
    """A value as an error names it, with its type."""
    return f"{given!r:.{SHOWN_CHARACTERS}} ({type(given).__name__})"


# --- times ------------------------------------------------------------------------------------------------------------


def seconds(given: Any, name: str = "timeout") -> float:
    """None, infinity and librdkafka's -1 wait without end. A time that is over (`deadline - now`) does not wait."""
    if type(given) is float or type(given) is int:
        if 0 <= given <= FOREVER_S:
            return given
    elif given is None:
        return FOREVER_S
    elif isinstance(given, bool | str | bytes) or not hasattr(type(given), "__float__"):
        raise TypeError(f"{name} is {_SECONDS}, or None to wait without end; not {shown(given)}")
    moment = float(given)
    if math.isnan(moment):
        raise ValueError(f"{name} is {_SECONDS}, or None to wait without end; not nan")
    if moment == WITHOUT_END:
        return FOREVER_S
    return min(max(moment, 0.0), FOREVER_S)


def poll_ms(given: Any) -> int:
    """How long a call waits for records; None waits without end."""
    return int(seconds(given) * 1000)


def timeout_s(given: Any, name: str = "timeout") -> float | None:
    """None stays None: the call has a limit of its own then."""
    return None if given is None else seconds(given, name)


def timeout_ms(given: Any, name: str = "timeout") -> int | None:
    return None if given is None else int(seconds(given, name) * 1000)


def moment_ms(given: Any, name: str = "timestamp_ms") -> int:
    """A point in time, in milliseconds since 1970."""
    found = whole_number(given, name, "a whole number of milliseconds since 1970")
    if found < 0:
        raise ValueError(f"{name} is 0 or more milliseconds since 1970, not {found}")
    return found


# --- numbers and names ------------------------------------------------------------------------------------------------


def whole_number(given: Any, name: str, wanted: str = "a whole number", least: int | None = None) -> int:
    try:
        if isinstance(given, bool):
            raise TypeError  # True would count as 1, and nobody means that
        found = index(given)
    except TypeError:
        raise TypeError(f"{name} is {wanted}, not {shown(given)}") from None
    if least is not None and found < least:
        raise ValueError(f"{name} is {least} or more, not {found}")
    return found


def limit(given: Any, name: str = "max_records") -> int | None:
    return None if given is None else whole_number(given, name, least=1)


def a_text(given: Any, name: str) -> str:
    """Whatever it says: that is for the broker to judge."""
    if not isinstance(given, str):
        raise TypeError(f"{name} is a string, not {shown(given)}")
    return given


def text(given: Any, name: str) -> str:
    """A name that is not empty."""
    found = a_text(given, name)
    if not found:
        raise ValueError(f"{name} must not be empty")
    return found


def texts(given: Any, name: str) -> list[str]:
    """Several names (or a mapping whose keys they are), or one: a text alone is never taken apart into its letters."""
    if isinstance(given, str):
        return [text(given, name)]
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is a string or a list of strings, not {shown(given)}")
    return [text(one, f"each of {name}") for one in given]


def topic_name(given: Any, name: str = "the topic") -> str:
    """Raises InvalidTopicException for a name that no topic can have, without asking a broker."""
    if not isinstance(given, str):
        raise TypeError(f"{name} is a name (str), not {shown(given)}")
    check_topic_name(given)
    return given


def topics(given: Any) -> frozenset[str] | re.Pattern[str]:
    """One name, several, or a pattern: a compiled one, or a text that begins with ^, as librdkafka has it."""
    wanted = 'names or a pattern, such as ["orders"] or "^orders-.*"'
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise TypeError(f"a pattern of topics is one of strings, not bytes: {shown(given)}")
        return given
    if isinstance(given, str):
        return _pattern(given) if given.startswith("^") else frozenset([topic_name(given)])
    if given is None:
        raise TypeError(f"topics are {wanted}, not None; unsubscribe() reads nothing any more")
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"topics are {wanted}, not {shown(given)}")
    names = list(given)
    patterns = [one for one in names if isinstance(one, re.Pattern) or (isinstance(one, str) and one.startswith("^"))]
    if patterns:
        if len(names) > 1:
            raise ValueError(f"topics are names or one pattern, not a list with {shown(patterns[0])} in it")
        return topics(patterns[0])
    return frozenset(topic_name(one, "each of the topics") for one in names)


def _pattern(given: str) -> re.Pattern[str]:
    try:
        return re.compile(given)
    except re.error as error:
        raise ValueError(f"{given!r} begins with ^ and is not a regular expression: {error}") from None


def isolation_level(given: Any) -> IsolationLevel:
    if isinstance(given, IsolationLevel):
        return given
    levels = {level.name: level for level in IsolationLevel}
    found = levels.get(given.upper()) if isinstance(given, str) else None
    if found is None:
        raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {shown(given)}")
    return found


def config_texts(given: Any, name: str = "configs", example: str = '{"retention.ms": 60000}') -> dict[str, str]:
    """Configs as requests carry them: numbers, truth values and lists become the texts that Kafka's files have."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is a mapping of keys to values, such as {example}; not {shown(given)}")
    return {text(key, f"each key of {name}"): _config_text(key, value) for key, value in given.items()}


def _config_text(key: str, given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, int | float):
        return str(given)
    if isinstance(given, list | tuple) and all(isinstance(one, str) for one in given):
        return ",".join(given)
    raise TypeError(f"the config {key} is a string, a number, true or false, or a list of strings; not {shown(given)}")


# --- partitions and offsets -------------------------------------------------------------------------------------------


def partition(given: Any) -> TopicPartition:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        try:
            number = -1 if isinstance(given[1], bool) else index(given[1])
        except TypeError:
            number = -1
        if given[0] and 0 <= number <= MAX_PARTITION:
            return TopicPartition(given[0], number)
    raise TypeError(f"{_PARTITION}; not {shown(given)}{_hint(given)}")


def _hint(given: Any) -> str:
    """For whoever brings the TopicPartition of confluent-kafka, or its like: an offset in it would be lost."""
    topic, number = getattr(given, "topic", None), getattr(given, "partition", None)
    return f": write {(topic, number)!r}" if isinstance(topic, str) and isinstance(number, int) else ""


def partitions(given: Any) -> list[TopicPartition]:
    """Partitions as a list (or any other iterable), or a single one."""
    if _is_pair(given):
        return [partition(given)]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{_PARTITION}; give a list of them, not {shown(given)}{_hint(given)}")
    return list(dict.fromkeys(partition(one) for one in given))


def these_partitions(given: tuple[Any, ...]) -> list[TopicPartition]:
    """Of a call that takes partitions one after the other, `pause(a, b)`, or as a list, `pause([a, b])`."""
    if len(given) == 1 and not _is_pair(given[0]):
        return partitions(given[0])
    return [partition(one) for one in given]


def these_or_all(given: tuple[Any, ...]) -> list[TopicPartition] | None:
    """The same, of a call that means all partitions where none is named: None then. A list that is empty means none."""
    return these_partitions(given) if given else None


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)


def by_partition(given: Any, values: str) -> dict[TopicPartition, Any]:
    """A mapping whose keys are partitions; `values` says of what."""
    if not isinstance(given, Mapping):
        raise TypeError(f'{values} by partition are wanted, such as {{("orders", 0): 5}}; not {shown(given)}')
    return {partition(one): value for one, value in given.items()}


def offset(given: Any) -> OffsetAndMetadata:
    """What is committed or sought: an offset alone, or with a note and an epoch."""
    if isinstance(given, tuple):
        try:
            found = OffsetAndMetadata(*given)
        except TypeError:
            raise TypeError(f"{_OFFSET}, not {shown(given)}") from None
        if not isinstance(found.metadata, str | None):
            raise TypeError(f"the metadata of an offset is a string, not {shown(found.metadata)}")
        epoch = -1 if found.leader_epoch is None else whole_number(found.leader_epoch, "the leader epoch of an offset")
        found = OffsetAndMetadata(whole_number(found.offset, "an offset"), found.metadata or "", epoch)
    else:
        try:
            if isinstance(given, bool):
                raise TypeError
            found = OffsetAndMetadata(index(given))
        except TypeError:
            raise TypeError(f"{_OFFSET}, not {shown(given)}") from None
    if found.offset < 0:
        raise ValueError(f"an offset is 0 or more, not {found.offset}; see seek_to_beginning() and seek_to_end()")
    if found.offset > MAX_OFFSET:
        raise ValueError(f"an offset is at most {MAX_OFFSET}, not {found.offset}")
    return found


def offsets(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit: by partition, or those after a record, which is processed then."""
    if isinstance(given, ConsumerRecord):
        after = OffsetAndMetadata(given.offset + 1, "", given.leader_epoch)
        return {TopicPartition(given.topic, given.partition): after}
    if not isinstance(given, Mapping):
        raise TypeError(
            'offsets to commit are a mapping such as {("orders", 0): 5}, with the next offset to read, or the last'
            f" record that was processed; not {shown(given)}"
        )
    return {partition(one): offset(value) for one, value in given.items()}


def of_kind(given: Any, kind: type[Any], wanted: str) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{wanted} is wanted, not {shown(given)}")
