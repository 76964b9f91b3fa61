from __future__ import annotations

import json
import socket
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
    assert outcome.err == (
        "oncelog: no broker answers (127.0.0.1:1: Connection refused); start one with `oncelog broker`, or check the"
        " address (-b)\n"
    )


@pytest.mark.parametrize("group", [(), ("--group", "billing")])
@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.real
def test_no_records_in_time_is_another_thing_than_no_broker(
    oncelog: Run, group: tuple[str, ...], is_silent: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # whoever connects is never answered
        address = f"127.0.0.1:{listener.getsockname()[1]}" if is_silent else UNREACHABLE
        outcome = oncelog("-b", address, "consume", "orders", *group, "--from-beginning", "--timeout", "0.1")
    reason = " did not answer in time" if is_silent else ": Connection refused"
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == (
        f"oncelog: no broker answers ({address}{reason}); start one with `oncelog broker`, or check the address (-b)\n"
    )


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


REFUSED = {
    "audit t --spark -X client.id=me": "a Spark job has clients of its own",
    "audit t --master local -X client.id=me": "a Spark job has clients of its own",
    "configs describe topic": "which topic?",
    "configs alter group -o a=b": "which group?",
    "configs describe broker one": "a broker is named by its node id",
    "configs alter topic t": "nothing to alter",
    "configs alter client-id me -o producer_byte_rate=fast": "must be a number",
    "configs alter client-id me --append a=b": "not a list",
    "consume t --group g --until-end": "--until-end and --group do not go together",
    "consume t --group g --offset 3": "--offset and --group do not go together",
    "consume t --group g --partition 0": "--partition and --group do not go together",
    "consume t --json --format %s": "--json says itself how a record looks",
    "consume t --json --key-separator :": "--json says itself how a record looks",
    "consume t -X group.id=g": "use --group",
    "consume t --from-beginning --offset 3": "not allowed with",
    "faults --listen here": "is not an address; write HOST:PORT",
    "faults --rule nonsense": "unknown fault",
    "groups describe g --times 3": "--times is for --watch",
    "produce t --from-json --key-separator :": "leave out the other options",
    "produce t --keep-partitions": "is for --from-json",
    "produce t --from-json --keep-partitions --partition 1": "give either",
    "quotas describe": "whose limits?",
    "quotas alter --user u": "nothing to alter",
    "quotas alter --user u -o producer_byte_rate=fast": "must be a number",
    "run": "which pipeline?",
    "topics alter t": "nothing to alter",
    "transactions abort": "which one?",
    "transactions abort me --topic t": "give either",
    "transactions abort --topic t --partition 0": "give --start-offset, or all of",
    "transactions abort --topic t --partition 0 --start-offset 1 --producer-id 1": "give --start-offset, or all of",
    "transactions find-hanging --partition 0": "of which --topic?",
}


@pytest.mark.parametrize("line", REFUSED)
def test_options_that_make_no_sense_are_wrong_usage(oncelog: Run, line: str) -> None:
    """Found by looking at them, and told as what argparse finds: nobody is asked, and the exit code is 2."""
    words = line.split()
    told = oncelog(*words)
    assert (told.code, told.out) == (2, "")
    assert REFUSED[line] in told.err
    assert "--json" in words or told.err.startswith(f"usage: oncelog {words[0]}")
    in_json = oncelog(*words, "--json")
    assert in_json.code == 2
    error = json.loads(in_json.err)["error"]
    assert error["type"] == "WrongUsage"
    assert REFUSED[line] in error["message"]


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topcs", "list"], "oncelog: error: argument COMMAND: there is no 'topcs'; did you mean topics?"),
        (["topics", "crete"], "oncelog topics: error: argument ACTION: there is no 'crete'; did you mean create?"),
        (["topics", "xyz"], "ACTION: there is no 'xyz'; there are create, list, describe, alter, delete"),
        (["consume", "t", "--isolation", "read_comitted"], "there is no 'read_comitted'; did you mean read_committed"),
        (
            ["topics", "list", "--bootstrp", "h"],
            "unrecognized arguments: --bootstrp h; did you mean --bootstrap-server?",
        ),
        (["topics", "create", "t", "--partitons=3"], "arguments: --partitons=3; did you mean --partitions?"),
        (["topics", "list", "--partitons", "3"], "unrecognized arguments: --partitons 3\n"),  # `create` has it
        (["topics", "list", "more"], "unrecognized arguments: more\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_was_mistyped_is_told_with_what_was_meant(oncelog: Run, words: list[str], said: str) -> None:
    outcome = oncelog(*words)
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max.poll.records=5", "-X max.poll.records has no effect on who reads without a group: give --group as well"),
        ("isolation.level=read_committed", "-X isolation.level has no effect on who reads without a group: use --isol"),
        ("group.id=g", "-X group.id has no effect on who reads without a group: use --group"),
        ("fetch.max.wait.ms=40000", "fetch.max.wait.ms (40000) is not less than request.timeout.ms (30000)"),
        ("fetch.mx.wait.ms=5", "unknown setting fetch.mx.wait.ms; did you mean fetch.max.wait.ms?"),
        ("linger.ms=5", "unknown setting linger.ms: it is a setting of producers; leave this out"),
    ],
)
@pytest.mark.real
def test_who_reads_without_a_group_is_told_which_settings_have_no_effect(oncelog: Run, setting: str, said: str) -> None:
    assert said in oncelog("-b", UNREACHABLE, "consume", "t", "-X", setting).err


@pytest.mark.real
def test_a_group_member_takes_consumer_settings(oncelog: Run) -> None:
    outcome = oncelog("consume", "t", "--group", "g", "-X", "max.poll.record=1")
    assert "did you mean max.poll.records?" in outcome.err
