"""`oncelog transactions` with producers that leave transactions open, on oncelog and on Apache Kafka."""

from __future__ import annotations

import io
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from oncelog.cli.main import main
from tests.cli.conftest import Run
from tests.support.hanging import write_stray
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic
from tests.support.transactions import HandProducer, await_transactions, committed, end_offset, last_stable_offset

pytestmark = pytest.mark.on_both_brokers

TIMEOUT_MS = 600_000
"""No test outlasts it."""


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        await_transactions(client)
        yield client


@pytest.fixture
def topic(client: RawClient, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(client, name, partitions=2)
    return name


@pytest.fixture
def producer(client: RawClient, topic: str) -> HandProducer:
    """With an open transaction of one record in partition 0."""
    made = HandProducer(client, f"shop-{uuid.uuid4().hex[:8]}")
    eventually(lambda: made.init(timeout_ms=TIMEOUT_MS) == "none", "the producer has its id")
    assert made.produce(topic, b"one") == "none"
    return made


def test_lists(at_broker: Run, producer: HandProducer) -> None:
    name = producer.transactional_id

    def found(*options: str) -> list[dict[str, object]]:
        listed = at_broker("transactions", "list", "--json", *options).json
        return [one for one in listed if one["transactional_id"] == name]

    (one,) = found()
    assert (one["state"], one["producer_id"], one["coordinator_id"]) == ("Ongoing", producer.producer_id, 1)
    assert found("--state", "Empty", "--state", "Ongoing") == [one]
    assert found("--state", "Empty") == []
    assert found("--pattern", f"{name[:-2]}.*") == found("--producer-id", str(producer.producer_id)) == [one]
    assert found("--older-than", "3600") == []
    eventually(lambda: found("--older-than", "0.001") == [one], "it is open for a moment")
    lines = at_broker("transactions", "list").lines
    assert lines[0].split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "ID", "STATE"]
    assert [name, "1", str(producer.producer_id), "Ongoing"] in [line.split() for line in lines]

    producer.ended(commit=True)
    assert found("--older-than", "0") == [], "what has ended is not open"
    assert found("--older-than", "0", "--state", "CompleteCommit") != []


def test_filters_that_make_no_sense(at_broker: Run) -> None:
    assert (
        "no state 'Open' of transactions; there are Empty, Ongoing"
        in at_broker("transactions", "list", "--state", "Open", code=1).err
    )
    assert "'(' is not a regular expression" in at_broker("transactions", "list", "--pattern", "(", code=1).err
    assert "not a number of seconds" in at_broker("transactions", "list", "--older-than", "long", code=2).err


def test_describes(at_broker: Run, topic: str, producer: HandProducer) -> None:
    name = producer.transactional_id
    (one,) = at_broker("transactions", "describe", name, "--json").json
    assert (one["state"], one["producer_epoch"], one["timeout_ms"]) == ("Ongoing", producer.epoch, TIMEOUT_MS)
    assert one["partitions"] == [{"topic": topic, "partition": 0}]
    assert one["open_for_ms"] >= 0
    head, row = at_broker("transactions", "describe", name).lines
    assert head.startswith("TRANSACTIONAL ID")
    assert row.split()[0] == name
    assert row.endswith(f"{topic}-0")

    producer.ended(commit=False)
    (one,) = at_broker("transactions", "describe", name, "--json").json
    assert (one["state"], one["partitions"], one["open_for_ms"]) == ("CompleteAbort", [], None)
    missing = at_broker("transactions", "describe", name, "nobody", code=1)
    assert missing.err == (
        "oncelog: there is no transactional id 'nobody'; see `oncelog transactions list` (TRANSACTIONAL_ID_NOT_FOUND)\n"
    )


def test_producers_of_a_topic(at_broker: Run, topic: str, producer: HandProducer) -> None:
    (one,) = at_broker("transactions", "producers", topic, "--partition", "0", "--json").json
    assert (one["producer_id"], one["current_transaction_start_offset"]) == (producer.producer_id, 0)
    assert at_broker("producers", "describe", topic, "--partition", "0", "--json").json == [one]
    (row,) = at_broker("transactions", "producers", topic).lines[1:]
    assert row.split()[:4] == ["0", str(producer.producer_id), str(producer.epoch), "0"]


def test_a_producer_is_fenced_by_its_id(at_broker: Run, client: RawClient, topic: str, producer: HandProducer) -> None:
    name = producer.transactional_id
    asked = at_broker("transactions", "abort", name, code=1)
    assert asked.err == (
        f"oncelog: about to fence the producer of '{name}' (Ongoing) and abort what it has open; nothing was done: "
        "add --yes to do it\n"
    )
    assert producer.described()["transaction_state"] == "Ongoing"
    done = at_broker("transactions", "abort", name, "--yes")
    assert done.out == f"the producer of {name} is fenced; its transaction is aborted\n"
    assert producer.produce(topic, b"late") == "invalid_producer_epoch"
    assert committed(client, topic) == []
    again = at_broker("transactions", "abort", name, "--yes", "--json").json
    assert (again["state"], again["producer_epoch"]) == ("Empty", producer.epoch + 3)
    assert "no transactional id 'nobody'" in at_broker("transactions", "abort", "nobody", "--yes", code=1).err
    listed = at_broker("transactions", "list", "--json").json
    assert "nobody" not in {each["transactional_id"] for each in listed}, "asking creates nothing"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("said", "is_done"), [("n\n", False), ("", False), ("y\n", True)])
def test_people_are_asked(
    broker: BrokerProcess,
    producer: HandProducer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    said: str,
    is_done: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(said))
    code = main(["-b", broker.bootstrap, "transactions", "abort", producer.transactional_id])
    assert "and abort what it has open? [y/N]" in capfd.readouterr().err
    assert (code, producer.described()["transaction_state"]) == ((0, "Empty") if is_done else (1, "Ongoing"))


@pytest.fixture
def hanging(broker: BrokerProcess, client: RawClient, topic: str) -> HandProducer:
    """With a record in partition 1 that belongs to none of its transactions."""
    return write_stray(broker, client, topic, partition=1)


def test_what_hangs_is_found_and_aborted(
    at_broker: Run, client: RawClient, topic: str, producer: HandProducer, hanging: HandProducer
) -> None:
    anything = ("transactions", "find-hanging", "--max-transaction-timeout", "0")
    eventually(lambda: bool(at_broker(*anything, "--topic", topic, "--json").json), "it is silent for a moment")
    (one,) = at_broker(*anything, "--topic", topic, "--json").json
    assert (one["topic"], one["partition"], one["current_transaction_start_offset"]) == (topic, 1, 0)
    assert (one["producer_id"], one["transactional_id"]) == (hanging.producer_id, hanging.transactional_id)
    assert one in at_broker(*anything, "--json").json, "wherever it is"
    assert one in at_broker(*anything, "--broker", "1", "--json").json
    assert at_broker(*anything, "--broker", "7").out == "no transaction hangs\n"
    assert at_broker(*anything, "--topic", topic, "--partition", "0").out == "no transaction hangs\n"
    assert at_broker("transactions", "find-hanging", "--topic", topic).out == "no transaction hangs\n", "not for long"
    (row,) = at_broker(*anything, "--topic", topic, "--partition", "1").lines[1:]
    assert row.split()[:4] == [topic, "1", "0", str(hanging.producer_id)]

    abort = ("transactions", "abort", "--topic", topic, "--partition")
    assert "does not hang: its coordinator will end it" in at_broker(*abort, "0", "--start-offset", "0", code=1).err
    assert "those that are open begin at 0" in at_broker(*abort, "1", "--start-offset", "7", code=1).err
    assert "add --yes" in at_broker(*abort, "1", "--start-offset", "0", code=1).err
    assert last_stable_offset(client, topic, 1) == 0
    done = at_broker(*abort, "1", "--start-offset", "0", "--yes")
    assert done.out == f"the transaction of producer {hanging.producer_id} in {topic}-1 is aborted\n"
    assert last_stable_offset(client, topic, 1) == end_offset(client, topic, 1) == 2
    assert "none is open there" in at_broker(*abort, "1", "--start-offset", "0", code=1).err


def test_what_hangs_is_aborted_by_producer(
    at_broker: Run, client: RawClient, topic: str, hanging: HandProducer
) -> None:
    whose = ("--producer-id", str(hanging.producer_id), "--producer-epoch", str(hanging.epoch))
    abort = ("transactions", "abort", "--topic", topic, "--partition", "1", *whose)
    done = at_broker(*abort, "--coordinator-epoch", "0", "--yes", "--json").json
    assert (done["topic"], done["partition"], done["aborted"]) == (topic, 1, True)
    assert last_stable_offset(client, topic, 1) == end_offset(client, topic, 1) == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("abort",), "which one?"),
        (("abort", "--topic", "t"), "which one?"),
        (("abort", "x", "--topic", "t"), "either the ID of a producer"),
        (("abort", "--topic", "t", "--partition", "0"), "give --start-offset, or all of"),
        (("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"), "give --start-offset, or all of"),
        (
            ("abort", "--topic", "t", "--partition", "0", "--start-offset", "1", "--producer-id", "1"),
            "give --start-offset, or all of",
        ),
        (("find-hanging", "--partition", "0"), "of which --topic?"),
    ],
)
def test_contradictions(oncelog: Run, words: tuple[str, ...], complaint: str) -> None:
    outcome = oncelog("-b", "127.0.0.1:1", "transactions", *words, "--yes" if words[0] == "abort" else "--json")
    assert outcome.code == 2
    assert complaint in outcome.err


def test_help_teaches(oncelog: Run) -> None:
    out = oncelog("transactions", "--help").out
    assert "oncelog transactions find-hanging --topic orders" in out
    assert "transactions" in oncelog("--help").out
