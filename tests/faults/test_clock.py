"""Duplicates are recognised, and open transactions kept whole, whatever the clocks say: that of the broker, which jumps
while it runs and between runs, and those of clients, whose records may be days old."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

import oncelog
from oncelog.broker.process import Broker
from oncelog.faults import FaultProxy, Rule
from tests.faults.cell import PATIENT
from tests.faults.scene import Scene, no_acknowledged_record_is_lost_doubled_or_misplaced
from tests.support.batches import CONTROL, batch_records, make_batch, read_batches
from tests.support.broker import OncelogBroker
from tests.support.patience import eventually
from tests.support.ports import unused_port
from tests.support.raw import RawClient
from tests.support.requests import EARLIEST, LATEST, create_topic, fetch, list_offset, produce
from tests.support.transactions import READ_COMMITTED, HandProducer, await_transactions, wall_clock_ms

DAY_S = 24 * 3600
JUMPS = 8
MAX_JUMP_S = 30 * DAY_S
LIVES = 4
RECORDS_PER_LIFE = 60
LOST_ANSWER = 3
"""Which answer of a connection gets lost, and with it all that follow."""
HOUSEKEEPING_MS = 20


@pytest.fixture
def clock_offset_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """By how many seconds the clock is wrong, of every broker that the test starts."""
    offset_file = tmp_path / "clock-offset"
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(offset_file))
    clock = str(Path(__file__).parent / "jumping_clock")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [clock, os.environ.get("PYTHONPATH")])))
    return offset_file


def test_clock_jumps(tmp_path: Path, rng: random.Random, clock_offset_file: Path) -> None:
    # Otherwise records from a client whose clock is right are refused, rightly, as coming from the future.
    config = {"log.message.timestamp.after.max.ms": 2 * MAX_JUMP_S * 1_000}
    with Scene(tmp_path, config=config) as scene:
        for _ in range(JUMPS):
            clock_offset_file.write_text(str(rng.randint(-MAX_JUMP_S, MAX_JUMP_S)))
            scene.await_progress()
            time.sleep(rng.uniform(0, 0.2))
            if rng.random() < 0.5:
                scene.crash()
                scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


@pytest.mark.parametrize("is_spooled", [False, True])
def test_a_replay_of_history_through_lost_answers_and_clean_restarts(tmp_path: Path, is_spooled: bool) -> None:
    """Each life of the broker ends after it has stored batches whose answers never arrived; the next life gets them
    again, and their records are three days old."""
    spool = {"spool_dir": str(tmp_path / "spool")} if is_spooled else {}
    old_ms = wall_clock_ms() - 3 * DAY_S * 1_000
    # The line outlives its lost answer: only the end of the broker ends it.
    lost_answers = Rule.drop_response("Produce", every=LOST_ANSWER, limit=LIVES, cut_after_ms=600_000)
    with (
        Broker(tmp_path / "data", port=unused_port(), config={"log.retention.ms": -1}) as broker,
        FaultProxy(broker.bootstrap_servers, [lost_answers]) as proxy,
        oncelog.Producer(proxy.bootstrap_servers, batch_size=100, **PATIENT, **spool) as producer,
    ):
        with RawClient((broker.host, broker.port)) as client:
            create_topic(client, "history")
        futures = []
        for life in range(LIVES):
            numbers = range(life * RECORDS_PER_LIFE, (life + 1) * RECORDS_PER_LIFE)
            futures += [producer.send("history", b"%d" % each, timestamp_ms=old_ms + each) for each in numbers]
            eventually(lambda life=life: proxy.report().responses["Produce"].dropped > life, "an answer is lost")
            assert broker.stop() == 0
            broker.start()
        offsets = [future.result(60).offset for future in futures]
        with RawClient((broker.host, broker.port)) as client:
            stored = read_all(client, "history")
    assert stored == [b"%d" % each for each in range(LIVES * RECORDS_PER_LIFE)]
    assert offsets == list(range(len(stored)))


def test_a_clock_set_forward_by_days_forgets_no_idle_producer_and_breaks_no_open_transaction(
    tmp_path: Path, clock_offset_file: Path
) -> None:
    config = {
        "log.retention.check.interval.ms": str(HOUSEKEEPING_MS),
        "producer.id.expiration.check.interval.ms": str(HOUSEKEEPING_MS),
    }
    with OncelogBroker(tmp_path / "broker", config) as broker, RawClient(broker.address) as client:
        create_topic(client, "orders", configs={"retention.ms": str(DAY_S * 1_000)})
        create_topic(client, "signs", configs={"retention.bytes": "0"})
        await_transactions(client)
        transaction = HandProducer(client, "open").begun()
        assert transaction.produce("orders", b"first") == "none"
        idle = make_batch([b"idle"], producer_id=900, epoch=0, sequence=0, base_timestamp=wall_clock_ms())
        stored_at = produce(client, "orders", idle)["base_offset"]

        clock_offset_file.write_text(str(3 * DAY_S))
        for _ in range(2):  # between two looks of retention, expiry has had one
            await_retention(client)

        assert produce(client, "orders", idle)["base_offset"] == stored_at
        assert transaction.produce("orders", b"second") == "none"
        transaction.ended(commit=True)
        assert read_all(client, "orders", isolation_level=READ_COMMITTED) == [b"first", b"idle", b"second"]


def await_retention(client: RawClient) -> None:
    """What is written to `signs` goes with the next look."""
    produce(client, "signs", make_batch([b"sign"], base_timestamp=wall_clock_ms()))
    end = list_offset(client, "signs", LATEST)["offset"]
    eventually(lambda: list_offset(client, "signs", EARLIEST)["offset"] == end, "retention has looked")


def read_all(client: RawClient, topic: str, isolation_level: int = 0) -> list[bytes | None]:
    values: list[bytes | None] = []
    offset = list_offset(client, topic, EARLIEST)["offset"]
    end = list_offset(client, topic, LATEST, isolation_level=isolation_level)["offset"]
    while offset < end:
        for batch in read_batches(fetch(client, topic, offset, isolation_level=isolation_level)["records"]):
            values += [record.value for record in batch_records(batch) if not batch.attributes & CONTROL]
            offset = batch.base_offset + batch.last_offset_delta + 1
    return values
