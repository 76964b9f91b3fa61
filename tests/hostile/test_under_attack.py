"""A real broker under attack: it lives, stays small, says nothing of bugs, and serves others, meanwhile and afterwards.

One broker for all attacks, one after the other, and it starts again after them. How long others wait is no assertion
here: the row `attack` of the benchmarks measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.attacks import ATTACKS, ORDINARY, prepare
from tests.hostile.victim import victim
from tests.support.batches import make_batch, read_records
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import fetch, produce

MAX_RESIDENT_BYTES = 200 * 1000 * 1000
RESET_PEAK = "5"
SETTINGS = {
    "metrics.port": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with OncelogBroker(tmp_path_factory.mktemp("attacked"), SETTINGS) as broker:
        prepare(broker)
        yield broker


def forget_peak(broker: BrokerProcess) -> None:
    Path(f"/proc/{broker.pid}/clear_refs").write_text(RESET_PEAK)


def peak_bytes(broker: BrokerProcess) -> int:
    """The most memory that was resident since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def serves(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        produced = produce(client, ORDINARY, make_batch([b"ordinary"]))
        assert produced["error_code"] == 0
        offset = produced["base_offset"]
        assert [record.value for record in read_records(fetch(client, ORDINARY, offset)["records"])] == [b"ordinary"]


@pytest.mark.parametrize("name", ATTACKS)
def test_the_broker_lives_and_serves_others(attacked: BrokerProcess, name: str) -> None:
    pid, said_before = attacked.pid, len(attacked.log)
    forget_peak(attacked)
    with victim(attacked.address, ORDINARY) as answers_ms:
        ATTACKS[name](attacked)
    assert answers_ms, "somebody else was answered"
    assert (attacked.running, attacked.pid) == (True, pid)
    serves(attacked)
    peak = peak_bytes(attacked)
    print(f"{name}: p99 {sorted(answers_ms)[len(answers_ms) * 99 // 100]:.0f} ms, {peak / 1e6:.0f} MB")
    assert peak < MAX_RESIDENT_BYTES, f"{peak / 1e6:.0f} MB"
    said = attacked.log[said_before:]
    assert "bug:" not in said
    assert "Traceback" not in said


def test_what_the_attacks_have_left_is_no_burden_for_the_next_start(attacked: BrokerProcess) -> None:
    assert attacked.stop() == 0
    said_before = len(attacked.log)
    attacked.start()
    serves(attacked)
    assert peak_bytes(attacked) < MAX_RESIDENT_BYTES
    assert "Traceback" not in attacked.log[said_before:]
