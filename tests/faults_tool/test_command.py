"""`oncelog faults` as a process, as a user starts it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from oncelog.cli.faults import EPILOG
from oncelog.faults.rules import Rule
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

STOP_TIMEOUT_S = 60


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "oncelog", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_in_the_end_what_it_did(
    oncelog_broker: BrokerProcess, number: signal.Signals
) -> None:
    rules = ("--rule", "duplicate_request Metadata", "--rule", "delay ms=1-2")
    process = start("-b", oncelog_broker.bootstrap, "faults", "--seed", "7", "--json", *rules)
    assert process.stdout is not None
    word, address = process.stdout.readline().split()
    assert word == "ready"
    host, _, port = address.rpartition(":")
    with RawClient((host, int(port))) as client:
        (node,) = client.request("metadata", 12, {"topics": []})["brokers"]
        assert node["port"] == int(port)
    process.send_signal(number)
    out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    assert process.returncode == 0
    assert f"fault proxy for {oncelog_broker.bootstrap} with seed=7, rules: duplicate_request Metadata" in err
    report = json.loads(out)
    assert report["seed"] == 7
    assert report["requests"]["Metadata"]["duplicated"] == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--rule", "drop Produce"), "argument --rule: unknown fault 'drop'"),
        (("--listen", "nowhere"), "argument --listen: nowhere is not an address; write HOST:PORT"),
    ],
)
def test_mistakes_are_told_in_one_line(words: tuple[str, ...], complaint: str) -> None:
    _, err = (process := start("faults", *words)).communicate(timeout=STOP_TIMEOUT_S)
    assert process.returncode == 2
    assert err.splitlines()[-1].startswith(f"oncelog faults: error: {complaint}")


def test_the_examples_of_the_help_are_rules() -> None:
    texts = re.findall("--rule '(.*?)'", EPILOG)
    assert len(texts) == 5
    for text in texts:
        Rule.parse(text)
