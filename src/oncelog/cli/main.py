"""The command `oncelog`: finds the subcommand, imports that one alone, runs it, and says in one line what went wrong.

A subcommand is a module with `add_parser(subparsers)` and `run(args) -> int`. Only the chosen one is imported, so that
`oncelog broker` does not pay for tables and `oncelog topics` not for the broker.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from oncelog.errors import KafkaError, OncelogError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "ONCELOG_BOOTSTRAP"

FAILURE = 1
WRONG_USAGE = 2
INTERRUPTED = 130

NO_TERMINAL_COLUMNS = 80


class Command(NamedTuple):
    help: str
    needs_bootstrap: bool = True


COMMANDS = {
    "broker": Command("start a broker in the foreground", needs_bootstrap=False),
    "topics": Command("create, list, describe, alter and delete topics"),
    "produce": Command("send lines from stdin to a topic"),
    "consume": Command("print the records of a topic"),
    "groups": Command("consumer groups: members, lag, offsets"),
    "quotas": Command("list, describe and alter the limits of users and client ids"),
    "producers": Command("who writes to a topic: producer ids, epochs, sequences"),
    "transactions": Command("list, describe and abort transactions, find those that hang"),
    "audit": Command("lost, duplicated and out of order records of topics"),
    "doctor": Command("check a data folder, and repair what can be repaired", needs_bootstrap=False),
    "run": Command("run a pipeline on Spark from a file: topics, SQL, tables, exactly once"),
    "faults": Command("a proxy that breaks connections to a cluster by a seeded script"),
    "demo": Command("the whole system at work, faults included, in about a minute", needs_bootstrap=False),
}

EPILOG = """\
examples:
  oncelog broker --data ./data                       start a broker at 127.0.0.1:9092
  oncelog topics create orders --partitions 3
  seq 1000 | oncelog produce orders
  oncelog consume orders --from-beginning --max 10
  oncelog -b kafka-1:9092,kafka-2:9092 topics list   works with Apache Kafka as well

Each command has its own help and examples: oncelog COMMAND --help
"""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser(chosen_command(words))
    args = parser.parse_args(words)
    if not hasattr(args, "run"):
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    return run_command(args)


def run_command(args: argparse.Namespace) -> int:
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`). Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        if args.debug:
            raise
        print(f"oncelog: {describe_error(error)}", file=sys.stderr)
        return FAILURE
    return code


def describe_error(error: Exception) -> str:
    if isinstance(error, KafkaError):
        return f"{error.message} ({error.name})"
    if isinstance(error, OncelogError | OSError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}; run it again with --debug and report what it shows"


def chosen_command(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor an option's value."""
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in ("-b", "--bootstrap-server"):
            takes_value = True
        elif not word.startswith("-"):
            return word
    return None


class Parser(argparse.ArgumentParser):
    """Asks for the width of the terminal itself: argparse would load what can copy and compress files for that, with
    every argument that is added, and a broker would keep it in memory."""

    def _get_formatter(self) -> argparse.HelpFormatter:
        return self.formatter_class(self.prog, width=_terminal_columns() - 2)  # type: ignore[call-arg]


def _terminal_columns() -> int:
    try:
        return int(os.environ.get("COLUMNS", "")) or NO_TERMINAL_COLUMNS
    except ValueError:
        pass
    try:
        return os.get_terminal_size(1).columns or NO_TERMINAL_COLUMNS
    except OSError:
        return NO_TERMINAL_COLUMNS


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """A parser that knows all commands by name and help, and the arguments of the chosen one."""
    parser = Parser(
        prog="oncelog",
        description="A Kafka-compatible log and broker, and the tools to use it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"oncelog {import_module('oncelog').__version__}")
    _add_common(parser, with_bootstrap=True, with_defaults=True)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (text, needs_bootstrap) in COMMANDS.items():
        if name != command:
            subparsers.add_parser(name, help=text)
            continue
        import_module(f"oncelog.cli.{name}").add_parser(subparsers)
        for leaf in _leaves(subparsers.choices[name]):
            _add_common(leaf, with_bootstrap=needs_bootstrap, with_defaults=False)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, with_bootstrap: bool, with_defaults: bool) -> None:
    """The options that may stand before or after the command. Only the first place sets defaults: a second default
    would hide what was given at the first."""
    group = parser.add_argument_group("everywhere")

    def add(*flags: str, default: object, **more: Any) -> None:
        own = parser._option_string_actions.get(flags[-1])
        if own is not None:
            own.default = argparse.SUPPRESS
            return
        group.add_argument(*flags, default=default if with_defaults else argparse.SUPPRESS, **more)

    if with_bootstrap:
        add(
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT[,...]",
            default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
            help=f"brokers to ask first (default: ${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP})",
        )
    add("--json", action="store_true", default=False, help="JSON for scripts")
    add("--debug", action="store_true", default=False, help="show tracebacks")


def _leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser, or those of its actions (`topics create`, `topics list`, ...)."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [leaf for choice in set(action.choices.values()) for leaf in _leaves(choice)]
    return [parser]
