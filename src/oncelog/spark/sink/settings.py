"""What a query wants of the topic sink: its options and columns, checked before anything is written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncelog.client.producer_config import ProducerConfig
from oncelog.client.settings import LIKENESS
from oncelog.errors import InvalidConfig
from oncelog.spark.options import BadOption, Options

WHAT: Final = "the oncelog sink"
COLUMNS: Final = ("key", "value", "topic", "partition", "headers")
BYTES_TYPES: Final = ("string", "binary")
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": BYTES_TYPES,
    "value": BYTES_TYPES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS_TYPE,),
}
KNOWN_OPTIONS: Final = (
    "topic",
    "transactional.id.prefix",
    "mode",
    "atomic",
    "checkpointLocation",
    "group.id",
    "queryName",
    "includeHeaders",
    "create",
    "create.partitions",
    "create.replication.factor",
)
CREATE: Final = "create"
TOPIC_CONFIG: Final = "create.config."
"""What begins so is a config of topics that are created, by Kafka's own key."""
PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Names a topic, too: the journal's."""

FORBIDDEN_CLIENT_KEYS: Final = {
    "transactional.id": "the sink makes its own from transactional.id.prefix",
    "enable.idempotence": "the option 'mode' says which promise is kept",
    "group.id": "the option 'group.id' names the group whose offsets the sink commits",
}
DEFAULT_CLIENT_SETTINGS: Final = {"linger.ms": "50", "batch.size": str(256 * 1024)}
"""Nobody waits for a single row: a task is as fast as its last one."""


class Mode(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    IDEMPOTENT = "idempotent"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """How an output topic is made that does not exist. None: as the broker has it by default."""

    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SinkSettings:
    client: Mapping[str, str]
    topic: str | None
    """Of all rows; None: the column `topic` says it row by row."""
    columns: tuple[str, ...]
    """Those of the input that become part of records."""
    mode: Mode
    prefix: str | None
    is_atomic: bool
    checkpoint: str | None
    group_id: str | None
    new_topic: NewTopic | None = None
    """None: a topic that does not exist is an error."""

    @property
    def name(self) -> str:
        assert self.prefix is not None
        return self.prefix

    @property
    def transaction_timeout_ms(self) -> int | None:
        """As the user wants it; None: the longest that brokers allow."""
        text = self.client.get("transaction.timeout.ms")
        return None if text is None else int(text)


def sink_settings(options: Options, column_types: Mapping[str, str]) -> SinkSettings:
    """`column_types` are Spark's simple names of types, by column. Raises BadOption."""
    options.refuse_unknown(KNOWN_OPTIONS, TOPIC_CONFIG)
    topic = options.optional("topic")
    prefix = options.optional("transactional.id.prefix")
    default = Mode.IDEMPOTENT if prefix is None else Mode.EXACTLY_ONCE
    mode = Mode(options.choice("mode", list(Mode), default))
    is_atomic = options.choice("atomic", ("slot", "batch"), "slot") == "batch"
    group_id = options.optional("group.id")
    _check_promise(mode, prefix, is_atomic, group_id)
    return SinkSettings(
        _client_settings(options),
        topic,
        _checked_columns(column_types, topic),
        mode,
        prefix,
        is_atomic,
        options.optional("checkpointLocation"),
        group_id,
        _new_topic(options),
    )


def _new_topic(options: Options) -> NewTopic | None:
    partitions = options.integer("create.partitions", minimum=1)
    replication_factor = options.integer("create.replication.factor", minimum=1)
    configs = options.below(TOPIC_CONFIG)
    if options.flag(CREATE, False):
        return NewTopic(partitions, replication_factor, configs)
    if partitions or replication_factor or configs:
        raise BadOption(f"{WHAT}: options that begin with 'create.' are for topics that are created: set create=true")
    return None


def _check_promise(mode: Mode, prefix: str | None, is_atomic: bool, group_id: str | None) -> None:
    if mode is not Mode.EXACTLY_ONCE:
        for name, value in {"transactional.id.prefix": prefix, "group.id": group_id}.items():
            if value is not None:
                raise BadOption(f"{WHAT}: the option {name!r} belongs to mode=exactly-once, not to mode={mode.value}")
        if is_atomic:
            raise BadOption(f"{WHAT}: atomic=batch needs transactions, so mode=exactly-once, not mode={mode.value}")
        return
    if prefix is None:
        raise BadOption(
            f"{WHAT}: mode=exactly-once needs the option 'transactional.id.prefix', a name that no other query uses"
        )
    if not PREFIX.fullmatch(prefix):
        raise BadOption(
            f"{WHAT}: 'transactional.id.prefix' is made of letters, digits, '.', '_' and '-', at most 200 of them; "
            f"{prefix!r} is not"
        )


def _client_settings(options: Options) -> dict[str, str]:
    given = options.client_settings()
    for key, why in FORBIDDEN_CLIENT_KEYS.items():
        if key in given:
            raise BadOption(f"{WHAT}: the option 'kafka.{key}' cannot be set: {why}")
    settings = {**DEFAULT_CLIENT_SETTINGS, **given}
    try:
        ProducerConfig.of(settings)
    except InvalidConfig as error:
        raise BadOption(f"{WHAT}: {error}; it was given as an option that begins with 'kafka.'") from None
    return settings


def _checked_columns(types: Mapping[str, str], topic: str | None) -> tuple[str, ...]:
    if "value" not in types:
        near = difflib.get_close_matches("value", list(types), n=1, cutoff=LIKENESS)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadOption(f"{WHAT} needs a column 'value' (string or binary), and there is only {_listed(types)}{hint}")
    if topic is None and "topic" not in types:
        raise BadOption(f"{WHAT} needs the option 'topic', or a column 'topic' that says it row by row")
    used = tuple(name for name in COLUMNS if name in types and not (name == "topic" and topic is not None))
    for name in used:
        if types[name] not in TYPES[name]:
            raise BadOption(f"{WHAT}: the column {name!r} is {' or '.join(TYPES[name])}, not {types[name]}")
    return used


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
