"""Modules that are compiled behave as their sources do: their tests run on both forms."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.compiled import UNCOMPILED_VARIABLE, stale_extensions

ROOT = Path(__file__).parent.parent
SUITES = {
    "types": None,
    "wire.api": "wire/test_frame.py",
    "wire.primitives": "wire/test_hot.py",
    "wire.frame": "wire/test_frame.py",
    "wire.frame_receiver": "wire/test_frame_receiver.py",
    "client.delivery": "client/test_delivery.py",
    "client.batch": "client/test_batch.py",
    "client.accumulator": "client/test_accumulator.py",
    "client.node_ring": "client/test_node_ring.py",
    "client.placement": "client/test_placement.py",
    "client.intake": "client/test_intake.py",
    "client.loop_future": "client/test_loop_future.py",
    "client.loop_intake": "client/test_loop_intake.py",
    "client.connection": "client/test_connection.py",
    "client.link": "client/test_network.py",
    "client.network": "client/test_network.py",
    "client.metadata_cache": "client/test_metadata_cache.py",
    "client.producer_counters": "client/test_producer_counters.py",
    "client.idempotence": "client/test_idempotence.py",
    "client.verdict": "client/test_verdict.py",
    "client.fates": "client/test_sender.py",
    "client.dispatch": "client/test_sender.py",
    "client.sender": "client/test_sender.py",
    "client.sockets": "client/test_selecting.py",
    "client.standing_in": None,
    "records.frames": "records/test_frames.py",
    "records.validation": "records/test_validation.py",
    "log.producer_state": "log/test_producer_state.py",
    "log.verification": "log/test_verification.py",
    "log.segment": "log/test_segment.py",
    "log.partition_log": "log/test_partition_log.py",
    "broker.answer_line": "broker/test_answer_line.py",
    "broker.outbox": None,
    "broker.lookout": "broker/test_lookout.py",
    "broker.connection": None,
    "broker.dispatch": "broker/test_dispatch.py",
    "broker.handlers.heavy_batches": "broker/handlers/test_heavy_batches.py",
    "broker.handlers.produce": "broker/handlers/test_produce.py",
}


def test_no_extension_is_older_than_its_source() -> None:
    assert stale_extensions() == [], "run `make native`"


@pytest.mark.parametrize("name", SUITES)
def test_this_session_tests_the_compiled_form(name: str) -> None:
    assert import_module(f"oncelog.{name}").__file__.endswith(".so"), "run `make native`"  # type: ignore[union-attr]


def test_the_sources_pass_the_same_tests_uncompiled() -> None:
    suites = sorted({f"tests/{suite}" for suite in SUITES.values() if suite is not None})
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.compiled", "-p", "no:cacheprovider", *suites],
        cwd=ROOT,
        env={**os.environ, UNCOMPILED_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5_000:] + ended.stderr[-2_000:]
