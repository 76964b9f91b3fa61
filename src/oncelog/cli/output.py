"""How commands speak: the only module of the command line that writes to stdout and stderr.

Results go to stdout: a table on a terminal, plain aligned text in a pipe, JSON for scripts. Everything else goes to
stderr: errors, questions, notes on what is being waited for; with `--json` each of those is one line of JSON. Whatever
is written for people passes `printable`, because names, keys and messages come from elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oncelog.errors import KafkaError, OncelogError
from oncelog.printable import printable, unsafe

NO_TERMINAL_COLUMNS = 80
CHECKS = "oncelog.client.arguments"
"""Where public calls check what they are given."""
SAID_HERE = {"check bootstrap.servers": "check the address (-b)"}
"""What is called otherwise on a command line, in errors of clients."""
CLEAR_LINE = "\x1b[2K\r"
CLEAR_SCREEN = "\x1b[H\x1b[2J"


class _Speech:
    """Of this process, which runs one command."""

    is_json = False
    has_progress = False
    """Whether a line on stderr waits to be replaced."""


_speech = _Speech()


def speak_json(wanted: bool) -> None:
    """Whether errors and notes are JSON as well."""
    _speech.is_json = wanted


# --- results ----------------------------------------------------------------------------------------------------------


def say(text: object = "") -> None:
    """One line."""
    print(printable(text))


def say_now(text: object) -> None:
    """One line that somebody waits for."""
    print(printable(text), flush=True)


def say_text(text: str) -> None:
    """Our own text of several lines, as it is."""
    print(text, end="")


def print_json(value: Any) -> None:
    print(_json(value, indent=2))


def print_json_line(value: Any) -> None:
    """For what goes on and on: one object per line, at once."""
    print(_json(value), flush=True)


def _json(value: Any, **how: Any) -> str:
    import json

    return json.dumps(value, **how)


def safe_json(text: str) -> str:
    """JSON that holds characters beyond ASCII, with those a terminal might obey as `\\uXXXX`, which means the same."""
    return unsafe().sub(lambda found: _json(found[0])[1:-1], text)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    has_total: bool = False,
    expendable: Sequence[str] = (),
    colour_of: Callable[[int, str], str | None] | None = None,
) -> None:
    """Columns whose cells are all numbers are aligned to the right. What else is told of it: `Table`; which columns a
    narrow terminal is spared, and in which order: `fitting_lines`."""
    from oncelog.cli.table import ASCII, BOXED, Table, fitting_lines, plain_lines  # a broker draws none

    table = Table.of(columns, [[printable(_text(value)) for value in row] for row in rows])
    table = table._replace(has_total=has_total, colour_of=colour_of)
    if title:
        say(title)
    if sys.stdout.isatty():
        style = BOXED if "utf" in (sys.stdout.encoding or "").lower() else ASCII
        lines = fitting_lines(table, terminal_columns(), style, expendable)
    else:
        lines = plain_lines(table)
    for line in lines:
        print(line)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def clear_screen() -> None:
    """Before a screen that is drawn again and again; not in a pipe."""
    if sys.stdout.isatty():
        print(CLEAR_SCREEN, end="")


def terminal_columns() -> int:
    """argparse and rich would load a lot to find this out."""
    try:
        return int(os.environ.get("COLUMNS", "")) or NO_TERMINAL_COLUMNS
    except ValueError:
        pass
    try:
        return os.get_terminal_size(1).columns or NO_TERMINAL_COLUMNS
    except OSError:
        return NO_TERMINAL_COLUMNS


def reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more (`| head -1`)."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no such call here, or no such descriptor
        return False


# --- what is not a result ---------------------------------------------------------------------------------------------


def note(text: str) -> None:
    """What somebody who waits should know, on stderr."""
    if _speech.is_json:
        _to_stderr(_json({"note": text}))
    else:
        _to_stderr(f"oncelog: {printable(text)}")


def detail(text: str) -> None:
    """What a command did on its way, on stderr."""
    _to_stderr(_json({"note": text}) if _speech.is_json else printable(text))


def show_progress(text: str) -> None:
    """A line on a terminal that the next one takes the place of; nothing elsewhere."""
    if sys.stderr.isatty() and not _speech.is_json:
        _speech.has_progress = True
        print(f"{CLEAR_LINE}{printable(text)}", end="", file=sys.stderr, flush=True)


def clear_progress() -> None:
    if _speech.has_progress:
        _speech.has_progress = False
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def show_error(error: Exception) -> None:
    if _speech.is_json:
        _to_stderr(_json({"error": error_as_json(error)}))
    else:
        _to_stderr(f"oncelog: {printable(describe_error(error))}")


def show_wrong_usage(usage: str, program: str, message: str) -> None:
    if _speech.is_json:
        _to_stderr(_json({"error": {"type": "WrongUsage", "name": None, "code": None, "message": message}}))
    else:
        print(f"{usage}{program}: error: {printable(message)}", file=sys.stderr, flush=True)


def _to_stderr(line: str) -> None:
    clear_progress()
    print(line, file=sys.stderr, flush=True)


def describe_error(error: Exception) -> str:
    if isinstance(error, KafkaError):
        return f"{error.message} ({error.name})"
    if isinstance(error, OncelogError) or _is_refusal(error):
        return _as_said_here(str(error))
    if isinstance(error, OSError):
        return _describe_os_error(error)
    return f"unexpected {type(error).__name__}: {error}; run it again with --debug and report what it shows"


def _as_said_here(text: str) -> str:
    for theirs, ours in SAID_HERE.items():
        text = text.replace(theirs, ours)
    return text


def _is_refusal(error: Exception) -> bool:
    """Whether a public call did not take what it was given, such as an empty name, and not a mistake of ours."""
    if not isinstance(error, ValueError) or error.__traceback__ is None:
        return False
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    return frame.tb_frame.f_globals.get("__name__") == CHECKS


def _describe_os_error(error: OSError) -> str:
    """Without the number, which tells nobody anything."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror


def error_as_json(error: Exception) -> dict[str, object]:
    """`docs/command-line.md` promises this shape."""
    kind = type(error).__name__
    if isinstance(error, KafkaError):
        return {"type": kind, "name": error.name, "code": error.code, "message": error.message}
    return {"type": kind, "name": None, "code": None, "message": describe_error(error)}


# --- questions --------------------------------------------------------------------------------------------------------


def confirm(what: str, *, yes: bool, alone: str | None = None) -> None:
    """Ask before something that cannot be taken back. Nobody is asked with `--yes`. Where there is no terminal, scripts
    go on as told, unless `alone` says why they must not. Raises OncelogError if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        if alone is not None:
            raise OncelogError(alone)
        return
    if not agreed(what):
        raise OncelogError("nothing was done")


def agreed(question: str) -> bool:
    """Asked until the answer is yes or no; Enter and the end of the input are no."""
    while True:
        clear_progress()
        print(f"{printable(question)}? [y/N] ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if not line or answer in ("", "n", "no"):
            return False
        print("please answer y or n", file=sys.stderr, flush=True)
