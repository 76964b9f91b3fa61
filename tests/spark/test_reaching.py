"""The first question to a cluster."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from oncelog.client.blocking import BrokersUnreachable
from oncelog.spark import reaching
from tests.support.broker import OncelogBroker
from tests.support.ports import refusing_port


def test_a_broker_that_is_being_started_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_S", 120.0)
    with OncelogBroker(tmp_path, {}) as broker:
        broker.stop()
        starter = threading.Timer(0.5, broker.start)
        starter.start()
        try:
            with reaching.reached({"bootstrap.servers": broker.bootstrap}) as admin:
                assert admin.list_topics() == []
        finally:
            starter.join()


def test_an_address_where_nobody_is_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_S", 0.3)
    with pytest.raises(BrokersUnreachable, match="no broker answers"):
        reaching.reached({"bootstrap.servers": f"127.0.0.1:{refusing_port()}"})


def test_who_waits_is_told_what_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(reaching, "REACH_S", 0.3)
    monkeypatch.setattr(reaching, "TELL_S", 0.0)
    with pytest.raises(BrokersUnreachable):
        reaching.reached({"bootstrap.servers": f"127.0.0.1:{refusing_port()}"})
    (told,) = [record.getMessage() for record in caplog.records if record.name == reaching.__name__]
    assert "no broker answers" in told
    assert "trying again for up to " in told
