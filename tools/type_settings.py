"""Writes `oncelog/client/typed_settings.py` from the config classes: `python -m tools.type_settings`.

Type checkers and editors know the settings of clients from it: their names, what they may be, what they mean. A test
holds the module to what this one makes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from oncelog.client import consumer_config, producer_config, settings
from oncelog.client.config import ClientConfig
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.producer_config import ProducerConfig
from tools.document_settings import default_text, field_docstrings

PATH = Path(__file__).parent.parent / "src/oncelog/client/typed_settings.py"
WIDTH = 120

HEAD = '''"""The settings of clients for type checkers and editors: `Producer(lingr_ms=5)` is an error before it runs.

Written by `python -m tools.type_settings` from the config classes, which check values; change those. A name alone is
wrong here or right; of values only the type is told, since text as in a properties file is understood as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypedDict

from oncelog.types import IsolationLevel


class FolderPath(Protocol):
    """Such as a `pathlib.Path`."""

    def __fspath__(self) -> str: ...
'''

CLASSES: tuple[tuple[str, type[Any], Mapping[str, str], str], ...] = (
    ("ProducerSettings", ProducerConfig, producer_config.ALSO, "What `Producer` and `AsyncProducer` may be told."),
    ("ConsumerSettings", ConsumerConfig, consumer_config.ALSO, "What `Consumer` and `AsyncConsumer` may be told."),
    ("AdminSettings", ClientConfig, {}, "What `Admin` may be told."),
)

TEXT_KINDS = (
    settings.TextKind,
    settings.SecurityProtocolKind,
    producer_config.TransactionalIdKind,
    producer_config.TopicKind,
    consumer_config.GroupIdKind,
    consumer_config.OffsetResetKind,
)


def _names(choice: settings.Choice) -> str:
    """Editors offer the names; others for the same, and any case, are understood as well."""
    return f"Literal[{', '.join(map(repr, choice.names))}] | str".replace("'", '"')


TYPES: dict[type[Any], Callable[[Any], str]] = {
    **dict.fromkeys(TEXT_KINDS, lambda _: "str"),
    settings.Number: lambda _: "int",
    settings.BooleanKind: lambda _: "bool",
    settings.Choice: _names,
    settings.NameOr: lambda kind: "Any" if kind.method else f"{_names(kind.choice)} | Callable[..., int]",
    settings.Optional: lambda kind: f"{type_of(kind.kind)} | None",
    producer_config.AcksKind: lambda _: 'Literal["all", -1, 0, 1] | str | int',
    producer_config.PathKind: lambda _: "str | FolderPath",
    producer_config.InterceptorsKind: lambda _: "Iterable[Any]",
    consumer_config.InterceptorsKind: lambda _: "Iterable[Any]",
    consumer_config.AssignorsKind: lambda _: "str | Iterable[Any]",
    consumer_config.IsolationKind: lambda _: 'Literal["read_uncommitted", "read_committed"] | str | IsolationLevel',
}


def type_of(kind: Any) -> str:
    return TYPES[type(kind)](kind)


def typed_dict(name: str, config: type[Any], also: Mapping[str, str], about: str) -> str:
    meanings, kinds = field_docstrings(config), settings.kinds_of(config)
    lines = [f"class {name}(TypedDict, total=False):", f'    """{about}"""']
    for each in fields(config):
        if each.name == settings.BOOTSTRAP_SERVERS:
            continue  # an argument of its own
        default = default_text(each.name, each.default)
        text = meanings[each.name] + (f" By default {default}." if default else "")
        lines += ["", *_declared(each.name, type_of(kinds[each.name])), *_documented(text)]
    for other, field in also.items():
        lines += ["", *_declared(other, type_of(kinds[field])), *_documented(f"Kafka's name of `{field}`.")]
    return "\n".join(lines)


def _declared(name: str, kind: str) -> list[str]:
    line = f"    {name}: {kind}"
    if len(line) <= WIDTH:
        return [line]
    parts = kind.split(" | ")
    return [
        f"    {name}: (",
        *(line for number, part in enumerate(parts) for line in _part(f"        {'| ' if number else ''}{part}")),
        "    )",
    ]


def _part(line: str) -> list[str]:
    """As the formatter breaks a list of names that is too long for one line."""
    if len(line) <= WIDTH:
        return [line]
    head, _, names = line.removesuffix("]").partition("[")
    return [f"{head}[", *(f"            {name}," for name in names.split(", ")), "        ]"]


def _documented(text: str) -> list[str]:
    return textwrap.wrap(
        f'"""{text}"""', WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def module() -> str:
    return HEAD + "".join(f"\n\n{typed_dict(*each)}\n" for each in CLASSES)


if __name__ == "__main__":
    PATH.write_text(module())
