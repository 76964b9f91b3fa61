"""`oncelog produce`, `consume` and `producers` at a running broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from oncelog.cli.consume import WaitNotice
from oncelog.client.blocking import BlockingClient
from oncelog.client.metadata import NO_LEADER, PartitionMetadata
from oncelog.types import TopicPartition
from tests.cli.conftest import Run
from tests.client.test_partitioner import KNOWN
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess

NewTopic = Callable[[], str]


@pytest.fixture
def topic(at_broker: Run, new_topic: NewTopic) -> str:
    """A topic with three partitions."""
    name = new_topic()
    at_broker("topics", "create", name, "--partitions", "3")
    return name


def all_of(at_broker: Run, topic: str, *words: str) -> list[str]:
    return at_broker("consume", topic, "--from-beginning", "--until-end", *words).lines


def test_lines_become_records_and_records_lines(at_broker: Run, topic: str) -> None:
    lines = [f"line {number}" for number in range(5000)]
    at_broker("produce", topic, stdin="\n".join(lines).encode())
    assert sorted(all_of(at_broker, topic)) == sorted(lines)


def test_the_order_of_a_partition_is_the_order_of_the_lines(at_broker: Run, topic: str) -> None:
    lines = [str(number) for number in range(50_000)]
    at_broker("produce", topic, "--partition", "2", stdin="\n".join(lines).encode())
    assert all_of(at_broker, topic, "--partition", "2") == lines
    assert all_of(at_broker, topic, "--partition", "0") == []


def test_keys_choose_the_partition_that_java_would(at_broker: Run, topic: str) -> None:
    keys = [key.decode() for key in KNOWN]
    lines = [f"{key}:{turn}:x" for turn in range(2) for key in keys]
    at_broker("produce", topic, "--key-separator", ":", stdin="\n".join(lines).encode())
    expected = [f"{(KNOWN[key.encode()] & 0x7FFFFFFF) % 3} {key}={turn}:x" for turn in range(2) for key in keys]
    assert len({line[0] for line in expected}) > 1
    assert sorted(all_of(at_broker, topic, "--format", r"%p %k=%s\n")) == sorted(expected)
    assert sorted(all_of(at_broker, topic, "--key-separator", ":")) == sorted(lines)


def test_a_line_without_a_key_stops_after_the_lines_before_it(at_broker: Run, topic: str) -> None:
    refusal = at_broker("produce", topic, "--key-separator", "=", code=1, stdin=b"a=1\nb=2\nnonsense\nc=3\n")
    assert "line 3 has no key separator: 'nonsense'" in refusal.err
    assert sorted(all_of(at_broker, topic)) == ["1", "2"]


def test_headers_timestamps_and_compression(at_broker: Run, topic: str) -> None:
    before_ms = int(time.time() * 1000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        words = ("--compression", codec, "--header", "trace=1", "--header", "codec=" + codec)
        at_broker("produce", topic, *words, stdin=b"x" * 1000)
    records = [json.loads(line) for line in all_of(at_broker, topic, "--json")]
    assert len(records) == 5
    for record in records:
        assert record["topic"] == topic
        assert record["key"] is None
        assert record["value"] == "x" * 1000
        assert record["headers"][0] == {"key": "trace", "value": "1"}
        assert before_ms <= record["timestamp_ms"] <= time.time() * 1000


def test_bytes_that_are_no_text_survive(at_broker: Run, topic: str) -> None:
    at_broker("produce", topic, stdin=b"\xff\xfe\n\n")
    records = [json.loads(line) for line in all_of(at_broker, topic, "--json")]
    assert [record.get("value_base64", record.get("value")) for record in records] == ["//4=", ""]


def test_what_was_stored_is_reported(at_broker: Run, topic: str) -> None:
    outcome = at_broker("produce", topic, "--partition", "1", "--json", stdin=b"a\nb\nc\n")
    assert outcome.json == {"topic": topic, "records": 3, "last_offsets": {"1": 2}}
    assert at_broker("produce", topic, stdin=b"quiet\n").out == ""


def test_where_to_start_and_to_stop(at_broker: Run, topic: str) -> None:
    at_broker("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n3\n4\n")
    one = ("consume", topic, "--partition", "0")
    assert at_broker(*one, "--from-beginning", "--max", "2").lines == ["0", "1"]
    assert at_broker(*one, "--offset", "3", "--until-end").lines == ["3", "4"]
    assert at_broker(*one, "--offset", "-1", "--until-end").lines == ["4"]
    assert at_broker(*one, "--timeout", "0").lines == []
    assert at_broker(*one, "--until-end").lines == []
    refusal = at_broker(*one, "--offset", "77", code=1)
    assert "holds the offsets 0 to 4, not 77" in refusal.err


def test_committed_isolation_reads_what_is_committed(at_broker: Run, topic: str) -> None:
    at_broker("produce", topic, stdin=b"plain\n")
    assert all_of(at_broker, topic, "--isolation", "read_committed") == ["plain"]


def test_what_is_not_there(at_broker: Run, topic: str) -> None:
    assert "oncelog topics create nope" in at_broker("produce", "nope", code=1, stdin=b"x\n").err
    assert "oncelog topics create nope" in at_broker("consume", "nope", code=1).err
    assert "no partition 9" in at_broker("produce", topic, "--partition", "9", code=1, stdin=b"x\n").err
    assert "no partition 9" in at_broker("consume", topic, "--partition", "9", code=1).err
    assert "do not go together" in at_broker("consume", topic, "--group", "g", "--offset", "3", code=2).err
    assert "'%z' is unknown" in at_broker("consume", topic, "--format", "%z", code=2).err


def test_a_partition_without_a_leader_keeps_nobody_from_the_others(
    at_broker: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(3):
        at_broker("produce", topic, "--partition", str(partition), stdin=b"%d\n" % partition * 2)
    known = BlockingClient.partition
    looks = 0

    def partition_of(client: BlockingClient, partition: TopicPartition) -> PartitionMetadata:
        nonlocal looks
        looks += partition.partition == 1
        found = known(client, partition)
        return replace(found, leader=NO_LEADER) if partition.partition == 1 and looks < back_at else found

    monkeypatch.setattr(BlockingClient, "partition", partition_of)
    monkeypatch.setattr("oncelog.cli.reader.LOOK_AGAIN_S", 0.0)
    back_at = 1_000_000
    outcome = at_broker("consume", topic, "--from-beginning", "--max", "4")
    assert sorted(outcome.lines) == ["0", "0", "2", "2"]
    assert outcome.err == f"oncelog: {topic}-1 has no leader; waiting for it\n"
    looks, back_at = 0, 6
    outcome = at_broker("consume", topic, "--from-beginning", "--until-end")
    assert sorted(outcome.lines) == ["0", "0", "1", "1", "2", "2"]
    assert outcome.err.count("no leader") == 1


def test_a_record_larger_than_the_topic_allows_is_refused_and_smaller_ones_are_split(
    at_broker: Run, new_topic: NewTopic
) -> None:
    name = new_topic()
    at_broker("topics", "create", name, "-o", "max.message.bytes=1000")
    lines = [f"{number:0100d}" for number in range(100)]
    at_broker("produce", name, stdin="\n".join(lines).encode())
    assert all_of(at_broker, name) == lines
    assert "(MESSAGE_TOO_LARGE)" in at_broker("produce", name, code=1, stdin=b"x" * 2000).err


def test_producers(at_broker: Run, topic: str) -> None:
    assert at_broker("producers", "list", topic).lines == [
        "PRODUCER ID  EPOCH  PARTITIONS  OPEN TRANSACTIONS  LAST WRITE"
    ]
    at_broker("produce", topic, "--partition", "1", stdin=b"a\nb\n")
    (listed,) = at_broker("producers", "list", topic, "--json").json
    assert (listed["producer_epoch"], listed["partitions"], listed["open_transactions"]) == (0, 1, 0)
    (described,) = at_broker("producers", "describe", topic, "--json").json
    assert described["producer_id"] == listed["producer_id"]
    assert (described["partition"], described["last_sequence"]) == (1, 1)
    row = at_broker("producers", "describe", topic, "--partition", "1").lines[1].split()
    assert row[:4] == ["1", str(listed["producer_id"]), "0", "1"]
    assert len(at_broker("producers", "describe", topic, "--partition", "0").lines) == 1


# --- keys, tombstones, headers, JSON ----------------------------------------------------------------------------------


def test_tombstones(at_broker: Run, topic: str) -> None:
    words = ("--key-separator", ":", "--null-marker", "NULL")
    at_broker("produce", topic, *words, stdin=b"a:1\na:NULL\nNULL:2\n")
    records = [json.loads(line) for line in all_of(at_broker, topic, "--json")]
    assert sorted((record["key"] or "", record["value"] or "") for record in records) == [
        ("", "2"),
        ("a", ""),
        ("a", "1"),
    ]
    assert {record["value"] for record in records if record["key"] == "a"} == {"1", None}
    assert sorted(all_of(at_broker, topic, *words)) == ["NULL:2", "a:1", "a:NULL"]


@pytest.mark.on_both_brokers
def test_what_consume_prints_produce_takes(broker: BrokerProcess, at_broker: Run, new_topic: NewTopic) -> None:
    """A topic and its copy are the same: keys, values, headers, timestamps, partitions; null, binary, controls."""
    original, copy = new_topic(), new_topic()
    for name in (original, copy):
        at_broker("topics", "create", name, "--partitions", "2")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    data = [
        None,
        b"",
        b"plain",
        "Gr\u00fc\u00dfe \u2028 \x9b \U0001f389".encode(),
        b"\xff\x00\x1b[2J",
        b'{"a": "b\\n"}',
        b"two\nlines",
    ]
    for number, key in enumerate(data):
        for value in data:
            headers = [("one", key), ("two", value), ("\u202e", b"\x1b")]
            producer.produce(original, value, key, number % 2, timestamp=1_700_000_000_000 + number, headers=headers)
    assert producer.flush(60) == 0
    printed = at_broker("consume", original, "--from-beginning", "--until-end", "--json").out
    at_broker("produce", copy, "--from-json", "--keep-partitions", stdin=printed.encode())
    assert by_partition(broker, copy) == by_partition(broker, original)
    assert len(by_partition(broker, copy)) == len(data) ** 2


def by_partition(broker: BrokerProcess, topic: str) -> list[tuple[object, ...]]:
    """What a topic holds, as librdkafka reads it, partition by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    found: list[tuple[object, ...]] = []
    try:
        for index in (0, 1):
            partition = confluent_kafka.TopicPartition(topic, index, 0)
            _, end = consumer.get_watermark_offsets(partition, 60)
            consumer.assign([partition])
            while sum(one[0] == index for one in found) < end:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None
                found.append(
                    (index, message.timestamp(), message.key(), message.value(), tuple(message.headers() or ()))
                )
    finally:
        consumer.close()
    return found


def test_a_bad_line_of_json_stops_after_the_lines_before_it(at_broker: Run, topic: str) -> None:
    lines = b'{"key": "a", "value": "1"}\n{"key": "a", "vlaue": "2"}\n{"key": "a", "value": "3"}\n'
    refusal = at_broker("produce", topic, "--from-json", code=1, stdin=lines)
    assert "line 2 has an unknown field 'vlaue'; did you mean 'value'?" in refusal.err
    assert all_of(at_broker, topic) == ["1"]


def test_options_that_do_not_go_together(at_broker: Run, topic: str) -> None:
    produce = ("produce", topic)
    assert "--from-json says itself" in at_broker(*produce, "--from-json", "--key-separator", ":", code=2).err
    assert "is for --from-json" in at_broker(*produce, "--keep-partitions", code=2).err
    both = (*produce, "--from-json", "--keep-partitions", "--partition", "0")
    assert "give either" in at_broker(*both, code=2).err


def test_settings_of_the_producer(at_broker: Run, topic: str) -> None:
    at_broker("produce", topic, "-X", "compression.type=zstd", "-X", "linger.ms=1", stdin=b"a\n")
    assert all_of(at_broker, topic, "-X", "request.timeout.ms=5000", "-X", "fetch.max.wait.ms=5") == ["a"]
    assert "did you mean linger.ms?" in at_broker("produce", topic, "-X", "lingr.ms=1", code=1).err


# --- a terminal -------------------------------------------------------------------------------------------------------


def test_a_terminal_is_shown_what_it_would_obey(at_broker: Run, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at_broker("produce", topic, "--key-separator", ":", stdin=b"k\x1b[31m:v\x1b[2J\xff\n")
    raw = ["k\x1b[31m:v\x1b[2J\ufffd"]
    assert all_of(at_broker, topic, "--key-separator", ":") == raw, "a pipe gets the bytes"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert all_of(at_broker, topic, "--key-separator", ":") == [r"k\x1b[31m:v\x1b[2J\xff"]
    assert all_of(at_broker, topic, "--format", r"%k=%s\n") == [r"k\x1b[31m=v\x1b[2J\xff"]
    assert all_of(at_broker, topic, "--key-separator", ":", "--raw") == raw


@pytest.mark.parametrize(
    ("left", "why", "said"),
    [
        (None, None, "at the end of orders; waiting for new records (Ctrl-C stops)"),
        (1, None, "at the end of orders; waiting for 1 more record (Ctrl-C stops)"),
        (2000, None, "at the end of orders; waiting for 2,000 more records (Ctrl-C stops)"),
        (3, "no partition yet", "no partition yet; waiting for 3 more records (Ctrl-C stops)"),
    ],
)
def test_whoever_waits_is_told_once(
    capsys: pytest.CaptureFixture[str], left: int | None, why: str | None, said: str
) -> None:
    notice = WaitNotice("orders", patience_s=5)
    notice.quiet_for(4.9, left, why)
    assert capsys.readouterr().err == ""
    notice.quiet_for(5.0, left, why)
    notice.quiet_for(50.0, left, why)
    assert capsys.readouterr().err == f"oncelog: {said}\n"


def test_waiting_for_the_rest_is_said(at_broker: Run, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.cli.consume.TERMINAL_PATIENCE_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    at_broker("produce", topic, stdin=b"a\nb\n")
    outcome = at_broker("consume", topic, "--from-beginning", "--max", "5", "--timeout", "1")
    assert sorted(outcome.lines) == ["a", "b"]
    assert outcome.err.endswith(f"oncelog: at the end of {topic}; waiting for 3 more records (Ctrl-C stops)\n")


# --- as processes -------------------------------------------------------------------------------------------------


def command(broker: BrokerProcess, *words: str) -> list[str]:
    return [sys.executable, "-m", "oncelog", "-b", broker.bootstrap, *words]


def test_a_reader_that_has_seen_enough_is_no_error(broker: BrokerProcess, at_broker: Run, topic: str) -> None:
    at_broker("produce", topic, stdin=b"x\n" * 100_000)
    consume = subprocess.Popen(
        command(broker, "consume", topic, "--from-beginning"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert consume.stdout is not None
    assert consume.stderr is not None
    assert consume.stdout.readline() == b"x\n"
    consume.stdout.close()
    assert consume.wait(60) == 0
    assert consume.stderr.read() == b""
    consume.stderr.close()


@pytest.mark.parametrize("words", [(), ("--group", "{topic}")])
def test_a_reader_that_leaves_is_noticed_while_nothing_comes(
    broker: BrokerProcess, at_broker: Run, topic: str, words: tuple[str, ...]
) -> None:
    at_broker("produce", topic, stdin=b"only\n")
    words = tuple(word.format(topic=topic) for word in words)
    consume = subprocess.Popen(
        command(broker, "consume", topic, "--from-beginning", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert consume.stdout is not None
    assert consume.stderr is not None
    assert consume.stdout.readline() == b"only\n"
    consume.stdout.close()
    assert consume.wait(60) == 0
    assert consume.stderr.read() == b""
    consume.stderr.close()


@pytest.mark.parametrize(
    "words",
    [("topics", "list"), ("topics", "describe", "--json"), ("cluster",), ("--help",), ("completion", "bash")],
    ids=" ".join,
)
def test_every_command_may_be_cut_off(broker: BrokerProcess, topic: str, words: tuple[str, ...]) -> None:
    """Nobody reads what it writes: by the time it writes, the other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command(broker, *words), stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_produce_says_that_the_broker_is_gone_and_that_it_is_back(tmp_path: Path, oncelog: Run) -> None:
    with OncelogBroker(tmp_path) as broker:
        assert oncelog("-b", broker.bootstrap, "topics", "create", "lines").code == 0
        produce = subprocess.Popen(
            command(broker, "produce", "lines"), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert produce.stdin is not None
        assert produce.stderr is not None
        produce.stdin.write("first\n")
        produce.stdin.flush()
        assert oncelog("-b", broker.bootstrap, "consume", "lines", "--from-beginning", "--max", "1").lines == ["first"]
        broker.kill()
        produce.stdin.write("second\n")
        produce.stdin.flush()
        said = next(line for line in produce.stderr if "records are stored; nothing for" in line)
        assert re.match("oncelog: [01] of 2 records are stored; nothing for ", said), "the first may be in doubt"
        assert f"no broker answers ({broker.bootstrap}: Connection refused)" in said
        broker.start()
        assert any(line.startswith("oncelog: records are stored again: ") for line in produce.stderr)
        produce.stdin.close()
        assert produce.wait(60) == 0
        produce.stderr.close()


def test_new_records_are_printed_as_they_arrive_until_ctrl_c(broker: BrokerProcess, at_broker: Run, topic: str) -> None:
    consume = subprocess.Popen(command(broker, "consume", topic, "--from-beginning"), stdout=subprocess.PIPE)
    assert consume.stdout is not None
    for number in range(3):
        at_broker("produce", topic, stdin=b"record %d\n" % number)
        assert consume.stdout.readline() == b"record %d\n" % number
    os.kill(consume.pid, signal.SIGINT)
    assert consume.wait(60) == 130
    consume.stdout.close()


def test_lines_are_stored_once_although_the_broker_is_killed_again_and_again(tmp_path: Path, oncelog: Run) -> None:
    """Retries keep their sequence numbers, so a restart neither loses nor repeats a line."""
    with OncelogBroker(tmp_path) as broker:
        assert oncelog("-b", broker.bootstrap, "topics", "create", "lines", "--partitions", "2").code == 0
        produce = subprocess.Popen(command(broker, "produce", "lines"), stdin=subprocess.PIPE)
        assert produce.stdin is not None
        for number in range(300):
            produce.stdin.write(b"%d\n" % number)
            produce.stdin.flush()
            if number == 0:  # connected, and so patient with a broker that goes away
                assert oncelog("-b", broker.bootstrap, "consume", "lines", "--from-beginning", "--max", "1").code == 0
            if number % 100 == 50:
                broker.kill()
                broker.start()
        produce.stdin.close()
        assert produce.wait(120) == 0
        outcome = oncelog("-b", broker.bootstrap, "consume", "lines", "--from-beginning", "--until-end")
        assert sorted(map(int, outcome.lines)) == list(range(300))


def test_committed_readers_do_not_see_what_was_aborted(kafka_broker: BrokerProcess, oncelog: Run) -> None:
    """On Apache Kafka, since this needs transactions."""
    topic = "aborted-and-committed"
    assert oncelog("-b", kafka_broker.bootstrap, "topics", "create", topic).code == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    read = ("-b", kafka_broker.bootstrap, "consume", topic, "--from-beginning", "--until-end", "--isolation")
    assert oncelog(*read, "read_committed").lines == ["0", "2", "4"]
    assert oncelog(*read, "read_uncommitted").lines == ["0", "1", "2", "3", "4", "5"]
