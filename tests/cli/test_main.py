from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from oncelog.cli.main import COMMANDS, build_parser, chosen_command
from oncelog.cli.options import client_config
from tests.cli.conftest import Run, leaf_paths

UNREACHABLE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], None),
        (["--json"], None),
        (["topics", "list"], "topics"),
        (["-b", "consume", "topics", "list"], "topics"),
        (["--bootstrap-server", "h:1", "--json", "consume", "t"], "consume"),
        (["--bootstrap-server=h:1", "consume", "t"], "consume"),
    ],
)
def test_the_command_is_the_first_word_that_is_no_option(words: list[str], command: str | None) -> None:
    assert chosen_command(words) == command


def test_without_a_command_the_help_is_shown_as_wrong_usage(oncelog: Run) -> None:
    outcome = oncelog()
    assert outcome.code == 2
    for command in COMMANDS:
        assert command in outcome.err


@pytest.mark.parametrize("words", [["nonsense"], ["topics"], ["topics", "create"], ["consume", "t", "--max", "0"]])
def test_wrong_usage_exits_with_2(oncelog: Run, words: list[str]) -> None:
    assert oncelog(*words).code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_a_line_in_the_overview(oncelog: Run, command: str) -> None:
    outcome = oncelog(command, "--help")
    assert outcome.code == 0
    assert f"usage: oncelog {command}" in outcome.out
    assert "--debug" in outcome.out or "ACTION" in outcome.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples(oncelog: Run, command: str) -> None:
    assert "examples:\n  " in oncelog(command, "--help").out


@pytest.mark.real
def test_an_error_is_one_line_and_exit_code_1(oncelog: Run) -> None:
    outcome = oncelog("-b", UNREACHABLE, "topics", "list")
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("oncelog: no broker answers (127.0.0.1:1: Connection refused)")


@pytest.mark.real
def test_a_traceback_is_shown_only_with_debug(oncelog: Run) -> None:
    with pytest.raises(Exception, match="no broker answers"):
        oncelog("-b", UNREACHABLE, "--debug", "topics", "list")


def test_a_mistake_of_ours_is_one_line_as_well(oncelog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.cli.topics.Admin", None)
    outcome = oncelog("topics", "list")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "unexpected TypeError" in outcome.err
    assert "--debug" in outcome.err


@pytest.mark.parametrize("words", [["-b", UNREACHABLE, "topics", "list"], ["topics", "list", "-b", UNREACHABLE]])
@pytest.mark.real
def test_common_options_may_stand_before_and_after_the_command(oncelog: Run, words: list[str]) -> None:
    assert UNREACHABLE in oncelog(*words).err


@pytest.mark.parametrize(
    "words", [["--json", "demo"], ["demo", "--json"], ["--json", "audit", "t"], ["topics", "list", "--json"]]
)
def test_json_may_stand_before_and_after_commands_that_define_it_themselves(words: list[str]) -> None:
    assert build_parser(chosen_command(words)).parse_args(words).json is True


@pytest.mark.real
def test_the_environment_names_the_brokers(oncelog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "127.0.0.1:2")
    assert "127.0.0.1:2:" in oncelog("topics", "list").err
    assert UNREACHABLE in oncelog("topics", "list", "-b", UNREACHABLE).err


def test_a_bad_address_is_said(oncelog: Run) -> None:
    outcome = oncelog("-b", "host:port", "topics", "list")
    assert outcome.code == 1
    assert "write HOST:PORT" in outcome.err


def test_ctrl_c_is_quiet(oncelog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oncelog.cli.topics.Admin", interrupted)
    outcome = oncelog("topics", "list")
    assert (outcome.code, outcome.err) == (130, "")


def imported_by(*words: str) -> set[str]:
    code = (
        "import sys\nfrom oncelog.cli.main import build_parser, chosen_command\n"
        f"build_parser(chosen_command({list(words)!r}))\nprint(*sys.modules)"
    )
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_a_command_pays_only_for_itself() -> None:
    """`oncelog broker` must start in a blink: no tables, no client, no audit before they are wanted."""
    heavy = {"rich", "asyncio", "uvloop", "numpy", "pyarrow", "kio", "prometheus_client", "confluent_kafka"}
    assert imported_by("broker") & (heavy | {"oncelog.client.blocking", "oncelog.admin", "oncelog.wire.codec"}) == set()
    assert imported_by("consume", "t") & (heavy | {"oncelog.consumer", "oncelog.broker"}) == set()
    assert imported_by("topics", "list") & (heavy | {"oncelog.broker"}) == set()
    assert imported_by() & (heavy | {"oncelog.cli.broker", "oncelog.cli.topics"}) == set()


# --- errors for scripts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--json"], ["--json", "nonsense"], ["topics", "create", "--json"]])
def test_wrong_usage_is_json_where_json_is_wanted(oncelog: Run, words: list[str]) -> None:
    outcome = oncelog(*words)
    assert (outcome.code, outcome.out) == (2, "")
    error = json.loads(outcome.err)["error"]
    assert (error["type"], error["name"], error["code"]) == ("WrongUsage", None, None)
    assert error["message"]


@pytest.mark.real
@pytest.mark.parametrize("words", [["--json", "topics", "list"], ["cluster", "--json"], ["produce", "t", "--json"]])
def test_an_error_is_json_where_json_is_wanted(oncelog: Run, words: list[str]) -> None:
    outcome = oncelog("-b", UNREACHABLE, *words)
    assert (outcome.code, outcome.out) == (1, "")
    error = json.loads(outcome.err)["error"]
    assert error["type"] == "BrokersUnreachable"
    assert "no broker answers" in error["message"]


# --- settings of clients ----------------------------------------------------------------------------------------------


def parsed(*words: str) -> Any:
    return build_parser(chosen_command(words)).parse_args(list(words))


def test_client_settings_are_collected_before_and_after_the_command() -> None:
    args = parsed("-X", "request.timeout.ms=5000", "topics", "list", "-Xclient.id=me", "-X", "retry_backoff_ms=7")
    assert client_config(args, client_id="oncelog", linger_ms=1) == {
        "bootstrap.servers": "127.0.0.1:9092",
        "request.timeout.ms": "5000",
        "client.id": "me",
        "linger_ms": 1,
        "retry_backoff_ms": "7",
    }


def test_no_client_settings_are_left_from_an_earlier_command() -> None:
    parsed("topics", "list", "-X", "client.id=me")
    assert parsed("topics", "list").client_settings == []


@pytest.mark.parametrize("path", [path for path in leaf_paths() if COMMANDS[path[0]].makes_client], ids=" ".join)
def test_every_command_with_a_client_has_settings_and_uses_them(
    oncelog: Run, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]
) -> None:
    """A setting that nobody knows is refused before anybody is asked anything; so the command has looked at it."""
    needed = {
        "topics create": ["t"], "topics alter": ["t", "--partitions", "2"], "topics delete": ["t"], "produce": ["t"],
        "consume": ["t"], "delete-records": ["t", "--all"], "groups members": ["g"], "groups delete": ["g"],
        "groups reset-offsets": ["g", "--topic", "t", "--to-latest"], "groups delete-offsets": ["g", "--topic", "t"],
        "configs describe": ["topic", "t"], "configs alter": ["topic", "t", "-o", "a=b"], "audit": ["t"],
        "quotas describe": ["--user", "u"], "quotas alter": ["--user", "u", "-o", "producer_byte_rate=1"],
        "producers describe": ["t"], "transactions describe": ["x"], "transactions producers": ["t"],
        "transactions abort": ["x", "--yes"],
    }  # fmt: skip
    outcome = oncelog(*path, *needed.get(" ".join(path), []), "-X", "reqest.timeout.ms=1")
    assert outcome.code == 1
    assert "did you mean request.timeout.ms?" in outcome.err


@pytest.mark.real
def test_a_group_member_takes_consumer_settings(oncelog: Run) -> None:
    outcome = oncelog("consume", "t", "--group", "g", "-X", "max.poll.record=1")
    assert "did you mean max.poll.records?" in outcome.err
