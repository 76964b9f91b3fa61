"""The command `oncelog`: finds the subcommand, imports that one alone, runs it, and says in one line what went wrong.

A subcommand is a module with `add_parser(subparsers)` and `run(args) -> int`. Only the chosen one is imported, so that
`oncelog broker` does not pay for tables and `oncelog topics` not for the broker.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from oncelog.cli import output
from oncelog.cli.ending import INTERRUPTED
from oncelog.cli.options import WrongUsage, key_value

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "ONCELOG_BOOTSTRAP"

FAILURE = 1
WRONG_USAGE = 2

WITH_VALUE = ("-b", "--bootstrap-server", "-X")
"""Options that may stand before the command and take the next word."""


class Command(NamedTuple):
    help: str
    needs_bootstrap: bool = True
    """Whether it talks to brokers: it then has -b."""
    makes_client: bool = True
    """Whether it does so as one of our clients: it then has -X."""


COMMANDS = {
    "broker": Command("start a broker in the foreground", needs_bootstrap=False, makes_client=False),
    "cluster": Command("what there is: brokers, controller, features, topics, what is offline"),
    "topics": Command("create, list, describe, alter and delete topics"),
    "produce": Command("send lines from stdin to a topic"),
    "consume": Command("print the records of a topic"),
    "delete-records": Command("delete the oldest records of a topic"),
    "groups": Command("consumer groups: members, lag, offsets"),
    "configs": Command("describe and alter the settings of topics, brokers, groups and clients"),
    "quotas": Command("list, describe and alter the limits of users and client ids"),
    "producers": Command("who writes to a topic: producer ids, epochs, sequences"),
    "transactions": Command("list, describe and abort transactions, find those that hang"),
    "audit": Command("lost, duplicated and out of order records of topics"),
    "doctor": Command(
        "check a data folder, and repair what can be repaired", needs_bootstrap=False, makes_client=False
    ),
    "run": Command("run a pipeline on Spark from a file: topics, SQL, tables, exactly once", makes_client=False),
    "faults": Command("a proxy that breaks connections to a cluster by a seeded script", makes_client=False),
    "demo": Command(
        "the whole system at work, faults included, in about two minutes", needs_bootstrap=False, makes_client=False
    ),
    "completion": Command(
        "completion of commands and options for bash, zsh or fish", needs_bootstrap=False, makes_client=False
    ),
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
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # before the command began
        return INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    output.speak_json("--json" in words)  # wrong usage is told before all words are understood
    command = chosen_command(words)
    parser = build_parser(command)
    args = parser.parse_args(words)
    output.speak_json(args.json)
    args.talks_to_brokers = command in COMMANDS and COMMANDS[command].needs_bootstrap
    if not hasattr(args, "run"):
        if args.json:
            parser.error("which command? `oncelog --help` lists them")
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    return run_command(args)


def run_command(args: argparse.Namespace) -> int:
    try:
        code = _run(args)
        sys.stdout.flush()
    except WrongUsage as error:
        args.refuse(str(error))
    except KeyboardInterrupt:
        output.clear_progress()
        return INTERRUPTED
    except BrokenPipeError as error:
        if not output.reader_is_gone():
            return _fail(args, error)
        # Whoever read our output has seen enough (`| head`). Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _fail(args, error)
    return code


def _run(args: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int] = args.run
    if not args.talks_to_brokers:
        return run(args)
    from oncelog.cli.client_warnings import told

    with told():
        return run(args)


def _fail(args: argparse.Namespace, error: Exception) -> int:
    if args.debug:
        raise error
    output.show_error(error)
    return FAILURE


def chosen_command(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor an option's value."""
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in WITH_VALUE:
            takes_value = True
        elif not word.startswith("-"):
            return word
    return None


class Parser(argparse.ArgumentParser):
    """Asks for the width of the terminal itself: argparse would load what can copy and compress files for that, with
    every argument that is added, and a broker would keep it in memory."""

    def _get_formatter(self) -> argparse.HelpFormatter:
        return self.formatter_class(self.prog, width=output.terminal_columns() - 2)  # type: ignore[call-arg]

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does it, with the option that was probably meant."""
        words = sys.argv[1:] if args is None else args
        known, unknown = self.parse_known_args(words, namespace)
        if unknown:
            parsers = list(_parsers_on_the_way(self, words))
            options = [option for parser in parsers for option in parser._option_string_actions]
            hints = (_meant(word.partition("=")[0], options) for word in unknown if word.startswith("--"))
            parsers[-1].error(f"unrecognized arguments: {' '.join(unknown)}{next(filter(None, hints), '')}")
        return known

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        hint = _meant(str(value), names) or f"; there are {', '.join(names)}"
        raise argparse.ArgumentError(action, f"there is no {str(value)!r}{hint}")

    def error(self, message: str) -> NoReturn:
        output.show_wrong_usage(self.format_usage(), self.prog, message)
        sys.exit(WRONG_USAGE)


def _parsers_on_the_way(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[argparse.ArgumentParser]:
    """To the command that the words choose."""
    yield parser
    for word in words:
        chosen = actions_of(parser).get(word)
        if chosen is not None:
            parser = chosen
            yield parser


def _meant(word: str, known: Iterable[str]) -> str:
    import difflib  # only for who mistyped

    near = difflib.get_close_matches(word, list(dict.fromkeys(known)), n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """A parser that knows all commands by name and help, and the arguments of the chosen one."""
    return _parser_with(() if command is None else (command,))


def full_parser() -> argparse.ArgumentParser:
    """One that knows the arguments of every command, and takes its time to learn them."""
    return _parser_with(COMMANDS)


def _parser_with(chosen: Collection[str]) -> argparse.ArgumentParser:
    parser = Parser(
        prog="oncelog",
        description="A Kafka-compatible log and broker, and the tools to use it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"oncelog {import_module('oncelog').__version__}")
    common = _CommonOptions()
    common.add_to(parser, Command(""), with_defaults=True)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        if name not in chosen:
            subparsers.add_parser(name, help=command.help)
            continue
        import_module(f"oncelog.cli.{name.replace('-', '_')}").add_parser(subparsers)
        for leaf in leaves_of(subparsers.choices[name]):
            common.add_to(leaf, command, with_defaults=False)
            leaf.set_defaults(refuse=leaf.error)
    return parser


class _CommonOptions:
    """The options that may stand before or after the command. Only the first place sets defaults: a second default
    would hide what was given at the first. Those that may be repeated are collected from both places."""

    def __init__(self) -> None:
        self._client_settings: list[tuple[str, str]] = []

    def add_to(self, parser: argparse.ArgumentParser, command: Command, *, with_defaults: bool) -> None:
        group = parser.add_argument_group("everywhere")

        def add(*flags: str, default: object, **more: Any) -> None:
            own = parser._option_string_actions.get(flags[-1])
            if own is not None:
                own.default = argparse.SUPPRESS
                return
            group.add_argument(*flags, default=default if with_defaults else argparse.SUPPRESS, **more)

        if command.needs_bootstrap:
            add(
                "-b",
                "--bootstrap-server",
                metavar="HOST:PORT[,...]",
                default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
                help=f"brokers to ask first (default: ${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP})",
            )
        if command.makes_client:
            add(
                "-X",
                dest="client_settings",
                metavar="KEY=VALUE",
                type=self._client_setting,
                default=self._client_settings,
                help="any setting of the client, by Kafka's name, such as request.timeout.ms=5000; may be repeated",
            )
        add("--json", action="store_true", default=False, help="JSON for scripts")
        add("--debug", action="store_true", default=False, help="show tracebacks")

    def _client_setting(self, text: str) -> list[tuple[str, str]]:
        self._client_settings.append(key_value(text))
        return self._client_settings


def leaves_of(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser, or those of its actions (`topics create`, `topics list`, ...)."""
    actions = actions_of(parser)
    return [leaf for choice in actions.values() for leaf in leaves_of(choice)] or [parser]


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """By the words that choose them; empty if there are none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
