"""`oncelog quotas` at a running broker: oncelog by default, Apache Kafka with `--brokers=oncelog,kafka`."""

from __future__ import annotations

import uuid

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def client_id() -> str:
    return f"client-{uuid.uuid4().hex[:8]}"


def test_alter_list_describe(at_broker: Run, client_id: str) -> None:
    whose = ("--client-id", client_id)
    altered = at_broker("quotas", "alter", *whose, "-o", "producer_byte_rate=1048576", "-o", "request_percentage=12.5")
    assert altered.out == f"limits of client-id {client_id} altered\n"
    expected = [
        ["WHOSE", "LIMIT", "VALUE"],
        [f"client-id {client_id}", "producer_byte_rate", "1048576"],
        [f"client-id {client_id}", "request_percentage", "12.5"],
    ]
    described = at_broker("quotas", "describe", *whose).lines
    assert [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in described] == expected
    assert set(described[1:]) <= set(at_broker("quotas", "list").lines)
    at_broker("quotas", "alter", *whose, "--unset", "producer_byte_rate", "--unset", "request_percentage")
    assert "has no limit of its own" in at_broker("quotas", "describe", *whose).out


def test_json(at_broker: Run, client_id: str) -> None:
    whose = ("--user", "alice", "--default-client-id", "--json")
    entity = {"user": "alice", "client-id": None}
    altered = at_broker("quotas", "alter", *whose, "-o", "consumer_byte_rate=5000").json
    assert altered == {"entity": entity, "altered": True}
    expected = {"entity": entity, "limits": {"consumer_byte_rate": 5000.0}}
    assert at_broker("quotas", "describe", *whose).json == [expected]
    assert expected in at_broker("quotas", "list", "--json").json
    at_broker("quotas", "alter", *whose, "--unset", "consumer_byte_rate")
    assert at_broker("quotas", "describe", *whose).json == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("alter", "--client-id", "web", "-o", "producer_byte_rate=-5"), "must be greater than 0 (INVALID_REQUEST)"),
        (("alter", "--client-id", "web", "-o", "producer_rate=5"), "producer_rate (INVALID_REQUEST)"),
        (("alter", "--user", "", "-o", "producer_byte_rate=5"), "the user must not be empty"),
    ],
)
def test_mistakes(at_broker: Run, words: tuple[str, ...], said: str) -> None:
    outcome = at_broker("quotas", *words, code=1)
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_wrong_usage(oncelog: Run) -> None:
    assert oncelog("quotas", "alter", "--user", "alice", "--default-user", "--unset", "x").code == 2
    assert "whose limits? Give --user" in oncelog("quotas", "alter", "-o", "producer_byte_rate=1").err
    assert oncelog("quotas").code == 2


def test_the_help_teaches(oncelog: Run) -> None:
    told = oncelog("quotas", "--help").out
    for word in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "ANONYMOUS", "examples:"):
        assert word in told
