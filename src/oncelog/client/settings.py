"""The machinery under every client's config: Kafka's keys with dots or underscores in, typed and checked values out.

A config is a frozen dataclass with a `Kind` in the annotation of each field (`Annotated[int, Number(1)]`): what turns
that which a user wrote, a value of the type itself or text as in a properties file, into the value.
`read_settings` does the rest. It knows no particular setting except `bootstrap.servers`, and it never judges two
settings together: contradictions are the business of the config that owns both.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, get_type_hints

from oncelog.client.callbacks import taken_instead
from oncelog.errors import InvalidConfig

DEFAULT_PORT = 9092
MAX_PORT = 65535
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
LIKENESS = 0.6  # how alike two keys must be for one to be offered in place of the other

TRUE_TEXTS = ("true", "1", "yes", "on")
FALSE_TEXTS = ("false", "0", "no", "off")


class Kind(Protocol):
    """What a setting may be."""

    @property
    def allowed(self) -> str:
        """The allowed values in the words of the reference."""
        ...

    def parse(self, key: str, given: Any) -> Any:
        """Raises InvalidConfig, which names the key, what was given and what is allowed."""
        ...


def refused(key: str, given: Any, allowed: str) -> InvalidConfig:
    return InvalidConfig(f"{key} is {allowed}, not {given!r}")


def dotted(name: str) -> str:
    """The key in Kafka's spelling."""
    return name.replace("_", ".")


@dataclass(frozen=True, slots=True)
class Number:
    low: int
    high: int = MAX_INT
    noun: str = "a whole number"

    @property
    def allowed(self) -> str:
        if self.high in (MAX_INT, MAX_LONG):
            return self.noun if self.low == 0 else f"{self.noun} of at least {self.low}"
        return f"{self.noun} from {self.low} to {self.high}"

    def parse(self, key: str, given: Any) -> int:
        number = _whole(given)
        if number is None:
            raise refused(key, given, self.allowed)
        if number < self.low:
            raise refused(key, given, f"{self.noun} of at least {self.low}" if self.low == 0 else self.allowed)
        if number > self.high:
            raise refused(key, given, f"{self.noun} of at most {self.high}")
        return number


def _whole(given: Any) -> int | None:
    if isinstance(given, bool):
        return None  # True would count as 1, and nobody means that
    try:
        number = int(given)
        return number if isinstance(given, str) or number == given else None
    except (TypeError, ValueError, OverflowError):
        return None


def milliseconds(low: int = 0, high: int = MAX_LONG) -> Number:
    return Number(low, high, "a whole number of milliseconds")


def size_in_bytes(low: int = 0, high: int = MAX_INT) -> Number:
    return Number(low, high, "a whole number of bytes")


@dataclass(frozen=True, slots=True)
class BooleanKind:
    allowed: str = "true or false"

    def parse(self, key: str, given: Any) -> bool:
        text = str(given).strip().lower()
        if text in TRUE_TEXTS:
            return True
        if text in FALSE_TEXTS:
            return False
        raise refused(key, given, self.allowed)


@dataclass(frozen=True, slots=True)
class TextKind:
    allowed: str = "a string"

    def parse(self, key: str, given: Any) -> str:
        if not isinstance(given, str):
            raise refused(key, given, self.allowed)
        return given


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names. Case does not count, as it does not in Kafka; other names for the same thing are mapped."""

    names: tuple[str, ...]
    also: Mapping[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.names)}"

    def parse(self, key: str, given: Any) -> str:
        return self.parse_or(key, given, self.allowed)

    def parse_or(self, key: str, given: Any, allowed: str) -> str:
        """Of a setting that may be something else as well."""
        text = str(given).strip()
        by_lower = {name.lower(): name for name in self.names}
        name = by_lower.get(text.lower(), text)
        name = self.also.get(name, name)
        if name not in self.names and name not in self.also:
            near = nearest(text.lower(), by_lower)
            hint = f"; did you mean {by_lower[near]}?" if near else ""
            raise InvalidConfig(f"{key} is {allowed}, not {given!r}{hint}")
        return name


@dataclass(frozen=True, slots=True)
class NameOr:
    """One of our names (or Kafka's name of the same), or the user's own object."""

    choice: Choice
    own: str
    takes: tuple[str, ...]
    """What the object is called with; its method with the topic before that."""
    method: str | None = None

    @property
    def allowed(self) -> str:
        return f"{self.choice.allowed}, or {self.own}"

    def parse(self, key: str, given: Any) -> Any:
        method = None if self.method is None else getattr(given, self.method, None)
        if callable(method):
            return self._fitting(key, given, method, f".{self.method}", ("topic", *self.takes))
        if callable(given):
            return self._fitting(key, given, given, "", self.takes)
        if not isinstance(given, str):
            raise refused(key, given, self.allowed)
        return self.choice.parse_or(key, given, self.allowed)

    def _fitting(self, key: str, given: Any, called: Any, method: str, arguments: tuple[str, ...]) -> Any:
        """Those of other libraries are called with something else."""
        names = taken_instead(called, len(arguments))
        if names is None:
            return given
        raise InvalidConfig(
            f"{key}{method} is called as ({', '.join(arguments)}), but this one takes ({', '.join(names)}): give"
            f" {self.own}"
        )


@dataclass(frozen=True, slots=True)
class ServersKind:
    allowed: str = "HOST:PORT[,HOST:PORT...]"

    def parse(self, key: str, given: Any) -> tuple[tuple[str, int], ...]:
        if not isinstance(given, (str, Iterable)):
            raise refused(key, given, self.allowed)
        return parse_servers(given)


@dataclass(frozen=True, slots=True)
class SecurityProtocolKind:
    allowed: str = "PLAINTEXT"

    def parse(self, key: str, given: Any) -> str:
        if str(given).strip().upper() != self.allowed:
            raise InvalidConfig(
                f"{key} is {given!r}, but this client speaks {self.allowed} only, without TLS or SASL:"
                " connect to a PLAINTEXT listener of the broker"
            )
        return self.allowed


@dataclass(frozen=True, slots=True)
class Optional:
    """What may also be None, which says the same as leaving it out."""

    kind: Kind

    @property
    def allowed(self) -> str:
        return self.kind.allowed

    def parse(self, key: str, given: Any) -> Any:
        return None if given is None else self.kind.parse(key, given)


Milliseconds = Annotated[int, milliseconds()]
Flag = Annotated[bool, BooleanKind()]
Text = Annotated[str, TextKind()]
Servers = Annotated[tuple[tuple[str, int], ...], ServersKind()]

BOOTSTRAP_SERVERS = "bootstrap_servers"


def kinds_of(config: type[Any]) -> Mapping[str, Kind]:
    """What each setting of a config may be, by the name of its field, in order."""
    hints = get_type_hints(config, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def read_settings(
    config: type[Any],
    bootstrap_servers: str | Iterable[str] | Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    client: str,
    also: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The values that a user gave, by field name of `config`; what was left out is not in it.

    `settings` win over those of a mapping. `also` maps further spellings to field names; `client` is whose settings
    they are, for `foreign_settings`. Raises InvalidConfig."""
    kinds = kinds_of(config)
    keys = _Keys(list(kinds), also or {}, client)
    if isinstance(bootstrap_servers, Mapping):
        given = keys.by_name(bootstrap_servers)
    else:
        given = {BOOTSTRAP_SERVERS: bootstrap_servers}
    given.update(keys.by_name(settings))
    if BOOTSTRAP_SERVERS not in given:
        raise InvalidConfig('bootstrap.servers is missing: say which brokers to ask first, such as "127.0.0.1:9092"')
    return {name: kinds[name].parse(dotted(name), value) for name, value in given.items()}


@dataclass(frozen=True, slots=True)
class _Keys:
    names: list[str]
    also: Mapping[str, str]
    client: str

    def by_name(self, given: Mapping[Any, Any]) -> dict[str, Any]:
        found: dict[str, tuple[str, Any]] = {}
        for key, value in given.items():
            name = self._name_of(key)
            if name in found:
                raise InvalidConfig(f"{found[name][0]} and {key} name the same setting; give one of them")
            found[name] = (key, value)
        return {name: value for name, (_, value) in found.items()}

    def _name_of(self, key: Any) -> str:
        if not isinstance(key, str):
            raise InvalidConfig(f"unknown setting {key!r}: keys are strings such as bootstrap.servers")
        name = key.replace(".", "_")
        name = self.also.get(name, name)
        if name in self.names:
            return name
        raise InvalidConfig(f"unknown setting {key}{self._hint(name)}")

    def _hint(self, name: str) -> str:
        from oncelog.client.foreign_settings import remedy  # a long table, which only mistakes need

        known = remedy(self.client, name)
        if known is not None:
            return f": {known}"
        near = nearest(name, [*self.names, *self.also])
        return f"; did you mean {dotted(near)}?" if near else ""


def nearest(text: str, names: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(text, list(names), n=1, cutoff=LIKENESS)
    return near[0] if near else None


def parse_servers(servers: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """`"a:9092,b"` or `["a:9092", "b"]`; a host without a port means 9092."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [_address(text) for text in texts if not isinstance(text, str) or text.strip()]
    if not addresses:
        raise InvalidConfig("bootstrap.servers is empty; write HOST:PORT[,HOST:PORT...]")
    return tuple(dict.fromkeys(addresses))


def _address(given: Any) -> tuple[str, int]:
    if not isinstance(given, str):
        raise InvalidConfig(f"{given!r} is not the address of a broker; write HOST:PORT")
    text = given.strip()
    scheme, is_url, rest = text.partition("://")
    if is_url:
        rest = rest.split("/")[0]
        if scheme.upper() == "PLAINTEXT" and rest:
            return _address(rest)  # as Kafka names listeners
        if scheme.upper() in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise InvalidConfig(
                f"{text!r} names a listener with {scheme.upper()}, but this client speaks PLAINTEXT only, without TLS"
                " or SASL: connect to a PLAINTEXT listener of the broker"
            )
        raise InvalidConfig(f"{text!r} is not the address of a broker; write HOST:PORT without {scheme}://")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)  # no port, or an IPv6 address without brackets
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= MAX_PORT:
        raise InvalidConfig(f"{text!r} is not the address of a broker; write HOST:PORT")
    return host, int(port)
