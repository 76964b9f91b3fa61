"""`oncelog completion bash|zsh|fish`: a script that makes a shell complete commands, actions, options and values.

Made from the parsers of all commands, so that it knows what they know. The script is static: pressing Tab starts no
Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.cli.output import say_text

EPILOG = """\
examples:
  source <(oncelog completion bash)                                    in ~/.bashrc
  oncelog completion zsh > ~/.zfunc/oncelog.zsh                        and `source` it in ~/.zshrc, after compinit
  oncelog completion fish > ~/.config/fish/completions/oncelog.fish
"""

FILES = {"FILE", "PIPELINE.toml"}
FOLDERS = {"DIR", "FOLDER"}
"""Metavars that stand for paths."""

HEAD = "# Completion of oncelog for {shell}; made by `oncelog completion {shell}`."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="completion of commands and options for bash, zsh or fish",
        description="Print a script that makes a shell complete oncelog's commands and options.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", metavar="SHELL", choices=sorted(SCRIPTS), help=f"one of {', '.join(sorted(SCRIPTS))}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from oncelog.cli.main import full_parser

    say_text(SCRIPTS[args.shell](tree_of(full_parser())))
    return 0


@dataclass(frozen=True, slots=True)
class Value:
    """What an argument may be: one of a few words, a path, or anything."""

    choices: tuple[str, ...] = ()
    is_file: bool = False
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    flags: tuple[str, ...]
    text: str
    value: Value | None
    """None if it takes none."""


@dataclass(slots=True)
class Place:
    """After these words: what may come next."""

    words: tuple[str, ...]
    options: list[Option] = field(default_factory=list)
    actions: dict[str, str] = field(default_factory=dict)
    """The words that lead on, with what they are for."""
    arguments: list[Value] = field(default_factory=list)


def tree_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> list[Place]:
    """This place, then those that it leads to."""
    place = Place(words)
    deeper: list[Place] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, choice in action.choices.items():
                place.actions[name] = texts.get(name, "")
                deeper += tree_of(choice, (*words, name))
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            text = (action.help or "").replace("%%", "%")
            place.options.append(Option(tuple(action.option_strings), text, _value_of(action)))
        else:
            place.arguments.append(_value_of(action) or Value())
    return [place, *deeper]


def _value_of(action: argparse.Action) -> Value | None:
    if action.nargs == 0:
        return None
    metavar = str(action.metavar)
    return Value(tuple(map(str, action.choices or ())), metavar in FILES, metavar in FOLDERS)


# --- bash, and zsh, which can run what is written for bash ------------------------------------------------------------


def bash_script(places: list[Place]) -> str:
    return "\n".join([HEAD.format(shell="bash"), *_bash_function(places), "complete -F _oncelog oncelog", ""])


def zsh_script(places: list[Place]) -> str:
    lines = [
        HEAD.format(shell="zsh"),
        "autoload -U +X bashcompinit && bashcompinit",
        *_bash_function(places),
        "complete -F _oncelog oncelog",
        "",
    ]
    return "\n".join(lines)


def _bash_function(places: list[Place]) -> Iterator[str]:
    """Only what bash 3.2 and zsh's emulation of bash have in common."""
    before = "|".join(_flags_with_value(places[0]))
    yield f"""\
_oncelog() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    local at="" word="" skip="" index=1
    while [ "$index" -lt "$COMP_CWORD" ]; do
        word="${{COMP_WORDS[$index]}}"
        index=$((index + 1))
        if [ -n "$skip" ]; then skip=""; continue; fi
        case "$at:$word" in
            *:{before.replace("|", "|*:")}) skip=yes;;
            *:-*) ;;"""
    for place in places[1:]:
        yield f'            "{" ".join(place.words[:-1])}:{place.words[-1]}") at="{" ".join(place.words)}";;'
    yield """\
        esac
    done
    COMPREPLY=()
    case "$at:$prev" in"""
    for place in places:
        for option in place.options:
            if option.value is not None:
                patterns = "|".join(f'"{" ".join(place.words)}:{flag}"' for flag in option.flags)
                yield f"        {patterns}) {_bash_reply(option.value)}; return;;"
    yield """\
    esac
    case "$at:$cur" in"""
    for place in places:
        at = " ".join(place.words)
        flags = " ".join(flag for option in place.options for flag in option.flags)
        yield f'''        "{at}:-"*) COMPREPLY=( $(compgen -W "{flags}" -- "$cur") );;'''
        if place.actions:
            yield f'''        "{at}:"*) COMPREPLY=( $(compgen -W "{" ".join(place.actions)}" -- "$cur") );;'''
        elif place.arguments:
            yield f'        "{at}:"*) {_bash_reply(place.arguments[0])};;'
    yield """\
    esac
}"""


def _flags_with_value(place: Place) -> list[str]:
    return [flag for option in place.options if option.value is not None for flag in option.flags]


def _bash_reply(value: Value) -> str:
    if value.choices:
        return f'COMPREPLY=( $(compgen -W "{" ".join(value.choices)}" -- "$cur") )'
    if value.is_file:
        return 'COMPREPLY=( $(compgen -f -- "$cur") )'
    if value.is_folder:
        return 'COMPREPLY=( $(compgen -d -- "$cur") )'
    return ":"


# --- fish -------------------------------------------------------------------------------------------------------------


def fish_script(places: list[Place]) -> str:
    lines = [HEAD.format(shell="fish"), _fish_function(places), "complete -c oncelog -f"]
    for place in places:
        at = f"-n {_quoted(' '.join(('__oncelog_at', *place.words)))}"
        for name, text in place.actions.items():
            lines.append(f"complete -c oncelog {at} -a {_quoted(name)} -d {_quoted(text)}")
        for value in place.arguments[:1]:
            lines += [f"complete -c oncelog {at} {how}" for how in _fish_argument(value)]
        for option in place.options:
            lines.append(f"complete -c oncelog {at} {_fish_option(option)}")
    return "\n".join([*lines, ""])


def _fish_function(places: list[Place]) -> str:
    """Whether the words so far lead to a place: all that are not options, up to where no more actions follow."""
    leaves = [" ".join(place.words) for place in places if place.words and not place.actions]
    return f"""\
function __oncelog_at
    set -l at
    set -l skip 0
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        if test $skip = 1
            set skip 0
            continue
        end
        if contains -- "$at" {" ".join(map(_quoted, leaves))}
            break
        end
        switch $word
            case {" ".join(_flags_with_value(places[0]))}
                set skip 1
            case '-*'
            case '*'
                set at $at $word
        end
    end
    test "$at" = "$argv"
end"""


def _fish_option(option: Option) -> str:
    names = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    value = ""
    if option.value is not None:
        value = " -x"  # anything, but no file
        if option.value.choices:
            value = f" -x -a {_quoted(' '.join(option.value.choices))}"
        elif option.value.is_file or option.value.is_folder:
            value = " -r -F"
    return f"{' '.join(names)}{value} -d {_quoted(option.text)}"


def _fish_argument(value: Value) -> Iterator[str]:
    if value.choices:
        yield f"-a {_quoted(' '.join(value.choices))}"
    elif value.is_file or value.is_folder:
        yield "-F"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
