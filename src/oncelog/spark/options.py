"""The options of a query, as Spark hands them over: text by names whose case is lost.

Owns how each kind of value is read and what is said about a wrong one. Knows no particular option but
`kafka.bootstrap.servers`; which of them fit together is the business of who asks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.client.settings import FALSE_TEXTS, LIKENESS, TRUE_TEXTS
from oncelog.errors import OncelogError

CLIENT_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
MAX_LONG: Final = 2**63 - 1


class BadOption(OncelogError):
    """An option of a query that is missing, wrong, or contradicts another. Nothing was read or written."""


class Options:
    """`what` names their owner in errors, as in "the oncelog source"."""

    def __init__(self, raw: Mapping[str, str], what: str) -> None:
        self._values = {name.lower(): value for name, value in raw.items()}
        self.what = what

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str:
        """A value that must be given."""
        value = self.optional(name)
        if value is None:
            raise BadOption(f"{self.what} needs the option {name!r}")
        return value

    def optional(self, name: str, default: str | None = None) -> str | None:
        value = self._values.get(name.lower())
        if value is None:
            return default
        if not value.strip():
            raise BadOption(f"the option {name!r} of {self.what} is empty")
        return value.strip()

    def integer(self, name: str, default: int | None = None, *, minimum: int = 0) -> int | None:
        text = self.optional(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.wrong(name, f"a whole number of at least {minimum}") from None
        if not minimum <= value <= MAX_LONG:
            raise self.wrong(name, f"a whole number of at least {minimum}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = self.optional(name)
        if text is None:
            return default
        if text.lower() in TRUE_TEXTS:
            return True
        if text.lower() in FALSE_TEXTS:
            return False
        raise self.wrong(name, "true or false")

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        value = (self.optional(name) or default).lower()
        names = list(allowed)
        if value not in names:
            raise self.wrong(name, f"one of {', '.join(names)}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Separated by commas; empty if not given."""
        text = self.optional(name)
        if text is None:
            return ()
        found = tuple(one.strip() for one in text.split(","))
        if not all(found) or len(set(found)) != len(found):
            raise self.wrong(name, "different names with commas between them")
        return found

    def client_settings(self) -> dict[str, str]:
        """What begins with `kafka.`, for the client: Kafka's own keys."""
        if BOOTSTRAP not in self:
            raise BadOption(f"{self.what} needs the option {BOOTSTRAP!r}: where the brokers are, HOST:PORT[,...]")
        return self.below(CLIENT_PREFIX)

    def below(self, prefix: str) -> dict[str, str]:
        """Those whose names begin so, by the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self._values.items()
            if name.startswith(prefix) and name != prefix
        }

    def refuse_unknown(self, known: Iterable[str], *prefixes: str) -> None:
        """All but the client's, and those that begin with one of `prefixes`, must be among the known ones."""
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names and not name.startswith((CLIENT_PREFIX, *prefixes)):
                near = difflib.get_close_matches(name, list(names), n=1, cutoff=LIKENESS)
                hint = f"; did you mean {names[near[0]]!r}?" if near else ""
                raise BadOption(f"{self.what} has no option {name!r}{hint}")

    def wrong(self, name: str, expected: str) -> BadOption:
        return BadOption(f"the option {name!r} of {self.what} is {expected}, not {self._values[name.lower()]!r}")
