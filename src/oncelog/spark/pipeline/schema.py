"""Which keys each section of a pipeline file has, of which kind, and what they mean.

Owns the tables of keys and the checks that need only one key: unknown, of another kind, not one of its choices. Never
looks at two keys together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from oncelog.client.settings import nearest
from oncelog.spark.pipeline.document import Entry, Problem, Section
from oncelog.spark.source.settings import KNOWN as SOURCE_OPTIONS
from oncelog.spark.table.settings import KNOWN as TABLE_OPTIONS


class Kind(Enum):
    TEXT = "a string"
    NUMBER = "a whole number above 0"
    FLAG = "true or false"
    NAMES = "a string or a list of strings"
    OPTION = "a string, a number, true or false, or a list of strings"
    ANY = "any value"


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    meaning: str
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keys:
    """`below` are prefixes under which any key may stand; if case does not matter, `SUBSCRIBE` is `subscribe`."""

    keys: tuple[Key, ...]
    below: tuple[Key, ...] = ()
    case_matters: bool = True

    def names(self) -> list[str]:
        return [key.name for key in self.keys]

    def find(self, name: str) -> Key | None:
        for key in self.keys:
            if key.name == name or (not self.case_matters and key.name.lower() == name.lower()):
                return key
        return next((key for key in self.below if name.startswith(key.name) and name != key.name), None)


def options(*names: str) -> tuple[Key, ...]:
    return tuple(Key(name, "an option of the data source", Kind.OPTION) for name in names)


KAFKA: Final = Key("kafka.", "a setting of the client, by Kafka's name", Kind.OPTION)
SPARK: Final = Key("spark.", "a setting of Spark, by its own name", Kind.OPTION)
SPARK_OPTION: Final = Key("options.", "an option of Spark's format", Kind.OPTION)
ARGUMENT: Final = Key("with.", "an argument of the function", Kind.ANY)

NAME: Final = Key("name", "its name: later steps and sinks refer to it")
FROM: Final = Key("from", "what it takes: the name of a source or of an earlier step", Kind.NAMES)

TRIGGER: Final = Key("trigger", '"available-now", "once" or "processing-time 10 seconds"')
PIPELINE: Final = Keys(
    (
        Key("name", "the pipeline's name; transactions and the checkpoint carry it"),
        Key("checkpoint", "the folder that remembers how far it is; relative to the file"),
        TRIGGER,
        Key("master", "Spark's master: local[*], spark://HOST:PORT, ..."),
    ),
    below=(SPARK, KAFKA),
)

SOURCE_FORMAT: Final = Key("format", "oncelog (a topic), or a format of Spark's own")
TOPIC_SOURCE: Final = Keys(
    (
        NAME,
        SOURCE_FORMAT,
        Key("streaming", "false: read once, as a table to join with", Kind.FLAG),
        *options(*SOURCE_OPTIONS),
    ),
    below=(KAFKA,),
    case_matters=False,
)  # fmt: skip
SPARK_SOURCE: Final = Keys(
    (
        NAME,
        SOURCE_FORMAT,
        Key("path", "files or a folder; relative to the file"),
        Key("schema", 'columns and types, such as "id BIGINT, name STRING"'),
        Key("streaming", "true: new files are read as they appear", Kind.FLAG),
    ),
    below=(SPARK_OPTION,),
)

STEP: Final = Keys(
    (
        NAME,
        Key("sql", "a query over sources and earlier steps, by their names"),
        Key("python", 'a function of data frames: "module:function" or "file.py:function"'),
        Key("tool", "a stream tool by its name, such as deduplicate"),
        FROM,
        Key("outputs", "names for the data frames, if the function returns several", Kind.NAMES),
    ),
    below=(ARGUMENT,),
)

NOT_FOR_PIPELINES: Final = ("dbtable", "run.id", "checkpointLocation")
"""Options of a table that are another name, for batches alone, or the pipeline's own to set."""

SINK_TYPE: Final = Key("type", "where rows go", choices=("topic", "table", "files", "console"))
OUTPUT_MODE: Final = Key("output_mode", "which rows of an aggregation", choices=("append", "complete"))
EVERY_SINK: Final = (NAME, SINK_TYPE, FROM, OUTPUT_MODE)
TOPIC_SINK: Final = Keys(
    (
        *EVERY_SINK,
        Key("topic", "the topic; without it each row names its own in the column topic"),
        Key("create", "true: make the topic if it is not there", Kind.FLAG),
        Key("partitions", "how many partitions a topic has that is made", Kind.NUMBER),
        Key("mode", "what it promises", choices=("exactly-once", "idempotent", "at-least-once")),
        Key("atomic", "what readers see at once: a task's rows, or a batch's", choices=("slot", "batch")),
        Key("transactional.id.prefix", "the name of its transactions; the pipeline's and the sink's by default"),
        Key("group.id", "a consumer group whose offsets show how far the pipeline is"),
    ),
    below=(KAFKA,),
)
TABLE_SINK: Final = Keys(
    (
        *EVERY_SINK,
        *options(*(name for name in TABLE_OPTIONS if name not in NOT_FOR_PIPELINES)),
    ),
    case_matters=False,
)
FILES_SINK: Final = Keys(
    (
        *EVERY_SINK,
        Key("format", "parquet by default", choices=("parquet", "json", "csv", "orc", "text")),
        Key("path", "the folder; relative to the file"),
        Key("partition_by", "columns that become folders", Kind.NAMES),
    ),
    below=(SPARK_OPTION,),
)
CONSOLE_SINK: Final = Keys(
    (
        *EVERY_SINK,
        Key("rows", "how many rows of a batch are shown", Kind.NUMBER),
        Key("truncate", "true: long values are cut", Kind.FLAG),
    )
)
ANY_SINK: Final = Keys(EVERY_SINK, below=(Key("", "depends on the type", Kind.ANY),))
"""While the type is not known, nothing more is."""
SINKS: Final[Mapping[str, Keys]] = {
    "topic": TOPIC_SINK,
    "table": TABLE_SINK,
    "files": FILES_SINK,
    "console": CONSOLE_SINK,
}


def problems_of(section: Section, keys: Keys) -> list[Problem]:
    """What is wrong with single keys."""
    found: list[Problem] = []
    for name, entry in section.entries.items():
        key = keys.find(name)
        text = _unknown(name, keys) if key is None else _wrong_value(key, entry.value)
        if text is not None:
            found.append(Problem(entry.where, f'{section.label} "{name}"{text}'))
    return found


def _unknown(name: str, keys: Keys) -> str:
    near = nearest(name, keys.names())
    if near:
        return f': did you mean "{near}"?'
    prefix = nearest(name.partition(".")[0] + ".", [key.name for key in keys.below])
    if prefix and "." in name:
        return f': did you mean "{prefix}{name.partition(".")[2]}"?'
    known = [*keys.names(), *(f"{key.name}*" for key in keys.below)]
    return f" is not a key here; there are {', '.join(known)}"


def _wrong_value(key: Key, value: Any) -> str | None:
    if not _fits(key.kind, value):
        return f" is {key.kind.value}, not {value!r}"
    if isinstance(value, str) and not value.strip():
        return f" is empty; it is {key.meaning}"
    if key.choices and value not in key.choices:
        near = nearest(str(value), key.choices)
        hint = f'; did you mean "{near}"?' if near else ""
        return f" is one of {', '.join(key.choices)}, not {value!r}{hint}"
    return None


def _fits(kind: Kind, value: Any) -> bool:
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.NUMBER:
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case Kind.FLAG:
            return isinstance(value, bool)
        case Kind.NAMES:
            return isinstance(value, str) or _is_list_of_texts(value)
        case Kind.OPTION:
            return isinstance(value, str | int | float) or _is_list_of_texts(value)
        case Kind.ANY:
            return True


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def option_text(value: object) -> str:
    """As Spark writes it."""
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def below(entries: Mapping[str, Entry], prefix: Key, *, keep_prefix: bool = False) -> dict[str, Any]:
    """The values of all keys under a prefix."""
    cut = 0 if keep_prefix else len(prefix.name)
    return {name[cut:]: entry.value for name, entry in entries.items() if name.startswith(prefix.name)}


def listed(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
