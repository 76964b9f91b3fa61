"""`oncelog ...` as a function, with what it printed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from oncelog.cli.main import actions_of, full_parser, main
from tests.support.process import BrokerProcess


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Outcome]


def leaf_paths() -> list[tuple[str, ...]]:
    """Every command, as the words that lead to it."""
    paths: list[tuple[str, ...]] = []
    for name, parser in actions_of(full_parser()).items():
        paths += [(name, action) for action in actions_of(parser)] or [(name,)]
    return paths


class Typed(io.StringIO):
    """A terminal at which somebody types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def oncelog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process; `stdin` is its input."""

    def run(*words: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        try:
            code = main(words)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run


@pytest.fixture
def at_broker(oncelog: Run, broker: BrokerProcess) -> Run:
    """As `oncelog`, at the running broker, and expected to succeed unless `code` says otherwise."""

    def run(*words: str, code: int = 0, stdin: bytes = b"") -> Outcome:
        outcome = oncelog("-b", broker.bootstrap, *words, stdin=stdin)
        assert outcome.code == code, outcome
        return outcome

    return run
