"""One config key: its type, default, rule and words, and what a text must look like to be its value.

Owns how texts become typed values and how Kafka words a refusal. Knows no key: the tables are in `topic_keys` and
`broker_keys`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum

from oncelog.errors import InvalidConfig

Value = bool | int | float | str | tuple[str, ...]
Validator = Callable[[Value], None]
"""Raises ValueError with Kafka's words if the parsed value breaks the key's rule."""


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """Whether a broker key may change while the broker runs, and for whom."""

    READ_ONLY = "read-only"
    PER_LISTENER = "per-listener"
    """For one listener at a time, under its name; of the broker's own it is described only."""
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
COMMA = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that sets the default of a topic key, and the factor from its unit to the topic's."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str | None
    documentation: str
    validator: Validator | None = None
    synonyms: tuple[Synonym, ...] = ()
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    """Kept out of descriptions unless it is set."""

    @property
    def is_sensitive(self) -> bool:
        """Never shown, never logged."""
        return self.type is ConfigType.PASSWORD

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    @property
    def default_value(self) -> Value | None:
        return None if self.default is None else self.parse(self.default)

    def parse(self, text: str) -> Value:
        """Raises InvalidConfig in Kafka's words."""
        value: Value = text
        try:
            value = _PARSERS[self.type](text.strip(), self.type)
            if self.validator is not None:
                self.validator(value)
        except ValueError as error:
            shown = _offender(value, error)
            raise InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {error}") from None
        return value


def render(value: Value) -> str:
    """A value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _offender(value: Value, error: ValueError) -> str:
    if isinstance(error, ElementError):
        return error.element
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else render(value)


def _parse_boolean(text: str, _: ConfigType) -> Value:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _parse_integer(text: str, config_type: ConfigType) -> Value:
    bound = 1 << (BITS[config_type] - 1)
    # The length keeps a hostile number from being converted at all.
    if not INTEGER.fullmatch(text) or len(text) > 20 or not -bound <= int(text) < bound:
        raise ValueError(f"Not a number of type {config_type.name}")
    return int(text)


def _parse_double(text: str, config_type: ConfigType) -> Value:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"Not a number of type {config_type.name}") from None


def _parse_list(text: str, _: ConfigType) -> Value:
    return tuple(dict.fromkeys(COMMA.split(text))) if text else ()


_PARSERS: dict[ConfigType, Callable[[str, ConfigType], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: lambda text, _: text,
    ConfigType.SHORT: _parse_integer,
    ConfigType.INT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: lambda text, _: text,
    ConfigType.PASSWORD: lambda text, _: text,
}


def at_least(minimum: int) -> Validator:
    def check(value: Value) -> None:
        assert isinstance(value, int | float)
        if not value >= minimum:
            raise ValueError(f"Value must be at least {minimum}")

    return check


def between(minimum: int, maximum: int) -> Validator:
    def check(value: Value) -> None:
        assert isinstance(value, int | float)
        if not value >= minimum:
            raise ValueError(f"Value must be at least {minimum}")
        if value > maximum:
            raise ValueError(f"Value must be no more than {maximum}")

    return check


def one_of(*choices: str) -> Validator:
    def check(value: Value) -> None:
        if value not in choices:
            raise ValueError(f"String must be one of: {', '.join(choices)}")

    return check


def each_of(*choices: str) -> Validator:
    """Every element of a list is one of `choices`."""

    def check(value: Value) -> None:
        assert isinstance(value, tuple)
        for element in value:
            if element not in choices:
                raise ElementError(element, f"String must be one of: {', '.join(choices)}")

    return check


class ElementError(ValueError):
    """One element of a list breaks the rule; Kafka names the element, not the list."""

    def __init__(self, element: str, reason: str) -> None:
        super().__init__(reason)
        self.element = element


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The key that a misspelt one most likely meant."""
    import difflib

    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown_key(kind: str, name: str, meant: str | None) -> InvalidConfig:
    """Of a topic, a broker or a group, in Kafka's words; then ours."""
    return InvalidConfig(f"Unknown {kind} config name: {name}{f'; did you mean {meant}?' if meant else ''}")
