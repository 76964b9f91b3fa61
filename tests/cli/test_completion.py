"""Completion scripts: they know what the parsers know, and the shells that are here take them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from oncelog.cli.completion import SCRIPTS, Place, tree_of
from oncelog.cli.main import COMMANDS, full_parser
from tests.cli.conftest import Run

SHELL_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def places() -> list[Place]:
    return tree_of(full_parser())


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_command_action_and_option_is_in_the_script(oncelog: Run, places: list[Place], shell: str) -> None:
    script = oncelog("completion", shell).out
    assert set(places[0].actions) == set(COMMANDS)
    for place in places:
        for word in place.words:
            assert word in script
        for flag in (flag for option in place.options for flag in option.flags):
            name = flag if shell != "fish" else flag.replace("--", "-l ") if "--" in flag else f"-s {flag[1:]}"
            assert name in script


def test_an_unknown_shell(oncelog: Run) -> None:
    assert "there is no 'tcsh'" in oncelog("completion", "tcsh").err


CASES = [
    (["to"], ["topics"]),
    (["topics", ""], ["create", "list", "describe", "alter", "delete"]),
    (["-b", "host:1", "topics", "c"], ["create"]),
    (["-X", "a=b", "--json", "topics", "del"], ["delete"]),
    (["topics", "create", "orders", "--part"], ["--partitions"]),
    (["topics", "delete", "--y"], ["--yes"]),
    (["consume", "orders", "--isolation", ""], ["read_committed", "read_uncommitted"]),
    (["consume", "topics", "--until"], ["--until-end"]),
    (["configs", "describe", "c"], ["client-id"]),
    (["completion", ""], ["bash", "fish", "zsh"]),
    (["delete-records", "--before-o"], ["--before-offset"]),
    (["topics", "create", "--partitions", ""], []),
]


TRIES = "\n".join(f"try oncelog {' '.join(repr(word) for word in words)}" for words, _ in CASES)


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.mark.real
def test_bash_completes(oncelog: Run) -> None:
    script = f"""{oncelog("completion", "bash").out}
try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _oncelog; echo "${{COMPREPLY[*]}}"; }}
{TRIES}
"""
    done = run_shell("bash", script)
    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == [expected for _, expected in CASES]


@pytest.mark.real
def test_bash_completes_folders(oncelog: Run, tmp_path: object) -> None:
    script = f"""{oncelog("completion", "bash").out}
COMP_WORDS=(oncelog broker --data {str(tmp_path)[:-1]}); COMP_CWORD=3; _oncelog; echo "${{COMPREPLY[*]}}"
"""
    done = run_shell("bash", script)
    assert str(tmp_path) in done.stdout.split()


@pytest.mark.real
@needs("zsh")
def test_zsh_completes(oncelog: Run) -> None:
    """As its completion calls a function that was written for bash; of the replies it takes those that begin so."""
    script = f"""autoload -U compinit; compinit -D
{oncelog("completion", "zsh").out}
try() {{
    emulate -L sh
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _oncelog; echo "${{COMPREPLY[*]}}"
}}
{TRIES}
"""
    done = run_shell("zsh", script)
    assert done.stderr == ""
    for (words, expected), line in zip(CASES, done.stdout.splitlines(), strict=True):
        assert [reply for reply in line.split() if reply.startswith(words[-1])] == expected


@pytest.mark.real
@needs("fish")
def test_fish_completes(oncelog: Run) -> None:
    script = oncelog("completion", "fish").out
    for words, expected in CASES:
        done = run_shell("fish", f"{script}\ncomplete -C {' '.join(['oncelog', *words])!r}\n")
        assert done.stderr == ""
        assert {line.split("\t")[0] for line in done.stdout.splitlines()} == set(expected)


def run_shell(shell: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([shell, "-c", script], capture_output=True, text=True, timeout=SHELL_TIMEOUT_S, check=True)
