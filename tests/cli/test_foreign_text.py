"""Names, keys, values and messages come from elsewhere: no command lets them reach a terminal raw, or forge a line."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

import oncelog as library
from oncelog.admin import Admin
from oncelog.cli import output
from oncelog.cli.main import COMMANDS
from oncelog.cli.output import CLEAR_LINE, CLEAR_SCREEN
from oncelog.printable import unsafe
from oncelog.types import TopicPartition
from tests.cli.conftest import Run, leaf_paths

EVIL = "evil\x1b]0;title\x07\x1b[2J\nforged-row\r\x9b31m\u202e"
TOPIC = "topic-with-evil-guests"
OWN_SEQUENCES = (
    CLEAR_SCREEN,
    CLEAR_LINE,
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[0m",
    "\x1b[?25l",
    "\x1b[?25h",
    "\r\x1b[2K",
    "\n",
)
"""What we ourselves tell a terminal."""
CLI = Path(output.__file__).parent

BY_HAND = {
    "broker": "its own log: tests/broker/test_log_lines.py",
    "demo": "shows only what it made itself",
}
"""Commands that the walk leaves out, and why."""

WALK: dict[str, list[tuple[str, ...]]] = {
    "cluster": [("cluster",)],
    "topics create": [("topics", "create", EVIL), ("topics", "create", TOPIC, "-o", f"{EVIL}={EVIL}")],
    "topics list": [("topics", "list")],
    "topics describe": [("topics", "describe", EVIL), ("topics", "describe", TOPIC)],
    "topics alter": [("topics", "alter", EVIL, "--partitions", "3"), ("topics", "alter", TOPIC, "--unset", EVIL)],
    "topics delete": [("topics", "delete", EVIL), ("topics", "delete", EVIL, "--if-exists")],
    "produce": [("produce", EVIL), ("produce", TOPIC, "--from-json"), ("produce", TOPIC, "--key-separator", EVIL)],
    "consume": [
        ("consume", EVIL),
        ("consume", TOPIC, "--from-beginning", "--until-end"),
        ("consume", TOPIC, "--from-beginning", "--until-end", "--key-separator", ":"),
        ("consume", TOPIC, "--from-beginning", "--until-end", "--format", r"%k %s %h %t\n"),
        ("consume", TOPIC, "--from-beginning", "--until-end", "--json"),
    ],
    "delete-records": [("delete-records", EVIL, "--all")],
    "groups list": [("groups", "list"), ("groups", "list", "--state", EVIL)],
    "groups describe": [
        ("groups", "describe", EVIL),
        ("groups", "describe", f"{EVIL}2"),
        ("groups", "describe", EVIL, "--watch", "0", "--times", "2"),
        ("groups", "describe", EVIL, "--exact"),
    ],
    "groups members": [("groups", "members", EVIL), ("groups", "members", f"{EVIL}2")],
    "groups reset-offsets": [
        ("groups", "reset-offsets", EVIL, "--all-topics", "--to-earliest"),
        ("groups", "reset-offsets", f"{EVIL}2", "--all-topics", "--to-earliest"),
        ("groups", "reset-offsets", EVIL, "--topic", EVIL, "--to-datetime", EVIL),
    ],
    "groups delete-offsets": [("groups", "delete-offsets", EVIL, "--topic", EVIL)],
    "groups delete": [("groups", "delete", f"{EVIL}2")],
    "configs describe": [("configs", "describe", "topic", EVIL), ("configs", "describe", "client-id", EVIL)],
    "configs alter": [
        ("configs", "alter", "topic", TOPIC, "-o", f"{EVIL}={EVIL}"),
        ("configs", "alter", "client-id", EVIL, "-o", "producer_byte_rate=1e9"),
        ("configs", "alter", "broker", EVIL, "-o", "a=b"),
    ],
    "quotas list": [("quotas", "list")],
    "quotas describe": [("quotas", "describe", "--client-id", EVIL), ("quotas", "describe", "--user", f"{EVIL}2")],
    "quotas alter": [("quotas", "alter", "--client-id", EVIL, "-o", f"{EVIL}=1")],
    "producers list": [("producers", "list"), ("producers", "list", EVIL)],
    "producers describe": [("producers", "describe", EVIL), ("producers", "describe", TOPIC)],
    "transactions list": [("transactions", "list"), ("transactions", "list", "--state", EVIL)],
    "transactions describe": [("transactions", "describe", EVIL), ("transactions", "describe", f"{EVIL}2")],
    "transactions producers": [("transactions", "producers", EVIL)],
    "transactions find-hanging": [("transactions", "find-hanging"), ("transactions", "find-hanging", "--topic", EVIL)],
    "transactions abort": [("transactions", "abort", f"{EVIL}2", "--yes"), ("transactions", "abort", EVIL)],
    "audit": [("audit", EVIL), ("audit", TOPIC)],
    "doctor": [("doctor", f"/tmp/{EVIL}")],
    "run": [("run", f"{EVIL}.toml"), ("run", "/dev/null", "-o", f"{EVIL}={EVIL}")],
    "faults": [("faults", "--listen", EVIL), ("faults", "--rule", EVIL)],
    "completion": [("completion", EVIL)],
}


def test_the_walk_knows_every_command() -> None:
    assert set(map(" ".join, leaf_paths())) == set(WALK) | set(BY_HAND)


@pytest.fixture(scope="module")
def guests(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker of its own that knows groups, members, clients, transactions and records of that name."""
    with library.Broker() as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, partitions=1)
        settings = {"transactional_id": EVIL, "client_id": EVIL}
        with library.Producer(broker.bootstrap_servers, **settings) as producer, producer.transaction():
            producer.send(TOPIC, key=EVIL, value=EVIL, headers=[(EVIL, EVIL.encode()), ("binary", b"\xff\x1b")])
            producer.send(TOPIC, key=b"\x1b\xff", value=None)
            for number in (3, 1):
                producer.send(TOPIC, value="numbered", headers=[("oncelog-id", f"{EVIL}/{number}".encode())])
        admin.alter_client_quotas({"client-id": EVIL}, assign={"producer_byte_rate": 1e9})
        admin.alter_group_offsets(EVIL, {TopicPartition(TOPIC, 0): 1})
        settings = {"group_id": f"{EVIL}3", "client_id": EVIL, "auto_offset_reset": "earliest"}
        with library.Consumer(broker.bootstrap_servers, **settings) as member:
            member.subscribe([TOPIC])
            assert member.poll(60)
            yield broker.bootstrap_servers


@pytest.mark.real
@pytest.mark.parametrize("how", ["terminal", "pipe", "json"])
@pytest.mark.parametrize("command", WALK)
def test_nothing_from_elsewhere_is_obeyed(
    oncelog: Run, guests: str, monkeypatch: pytest.MonkeyPatch, command: str, how: str
) -> None:
    if how == "terminal":
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for words in WALK[command]:
        is_raw = how == "pipe" and words[0] == "consume" and "--json" not in words
        common = ("-b", guests) if COMMANDS[words[0]].needs_bootstrap else ()
        outcome = oncelog(*common, *words, *(("--json",) if how == "json" else ()), stdin=f"{EVIL}\n".encode())
        for text in (outcome.err,) if is_raw else (outcome.out, outcome.err):
            own = reduce(lambda rest, sequence: rest.replace(sequence, ""), OWN_SEQUENCES, text)
            assert unsafe().search(own) is None, (words, text)
            assert not any(line.lstrip().startswith("forged-row") for line in text.splitlines()), (words, text)
        assert "Traceback" not in outcome.err
        assert "unexpected" not in outcome.err, (words, outcome.err)


@pytest.mark.real
def test_the_guests_are_seen(oncelog: Run, guests: str) -> None:
    """Else the walk would prove nothing."""
    shown = r"evil\x1b]0;title\x07\x1b[2J\nforged-row\r\x9b31m\u202e"
    for words in (
        ("groups", "list"),
        ("groups", "describe", f"{EVIL}3"),
        ("groups", "members", f"{EVIL}3"),
        ("quotas", "list"),
        ("transactions", "list"),
        ("audit", TOPIC),
    ):
        assert shown in oncelog("-b", guests, *words).out, words


def test_only_one_module_writes_to_the_terminal() -> None:
    """Whoever prints by itself goes round `printable`. The demo shows only what it made itself."""
    guilty = []
    for path in sorted(CLI.rglob("*.py")):
        if path.name == "output.py" or path.name.startswith("demo"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "input", "sys.stdout.write", "sys.stderr.write"):
                    guilty.append(f"{path.name}:{node.lineno}: {called}")
    assert guilty == []
