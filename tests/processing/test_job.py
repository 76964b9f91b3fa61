"""What `process()` may be asked to do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oncelog.errors import InvalidConfig
from oncelog.processing.job import Job


def job(**changes: Any) -> Job:
    usual: dict[str, Any] = {
        "source": "orders",
        "function": list,
        "target": "bills",
        "servers": "broker:9092",
        "group": "billing",
        "transactional_id": "billing-1",
    }
    return Job(**{**usual, **changes})


@pytest.mark.parametrize(
    "wrong",
    [
        {"function": "list"},
        {"function": lambda: [1]},
        {"function": lambda record, clock: []},
        {"on_batch": lambda: None},
        {"max_failures_in_a_row": 0},
        {"target": "orders"},
        {"dead_letter": "orders"},
        {"source": ["a", "orders"], "target": "orders"},
        {"source": iter(["a", "orders"]), "dead_letter": "orders"},
        {"source": re.compile("ord.*"), "target": "orders"},
        {"source": "^ord.*", "target": "orders"},
        {"batch_records": 0},
        {"batch_ms": -1},
        {"workers": 0},
        {"retries": -1},
        {"group": ""},
        {"transactional_id": ""},
        {"target": None, "tables": True},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        job(**wrong)


def test_a_coroutine_function_is_for_asyncio() -> None:
    async def function(records: Any) -> list[Any]:
        return []

    with pytest.raises(InvalidConfig, match="coroutine function"):
        job(function=function)
    assert job(function=function, is_async=True)


def test_sources_that_can_be_looked_at_once_are_kept() -> None:
    assert job(source=iter(["a", "b"])).source == ("a", "b")
    assert job(source=re.compile("ord.*"), target="border").reads("orders")


def test_settings_of_the_consumer() -> None:
    usual = job().consumer_settings()
    assert usual["isolation_level"] == "read_committed"
    assert usual["enable_auto_commit"] is False
    given = job(consumer={"auto.offset.reset": "latest", "enable.auto.commit": "false"}).consumer_settings()
    assert given["auto_offset_reset"] == "latest"
    with pytest.raises(InvalidConfig, match="commits offsets"):
        job(consumer={"enable.auto.commit": True}).consumer_settings()
    with pytest.raises(InvalidConfig, match="group_id"):
        job(consumer={"group.id": "another"}).consumer_settings()


def test_settings_of_the_producers() -> None:
    shared = job(servers={"bootstrap.servers": "a:1", "client.id": "me"}, producer={"linger.ms": 1})
    first, second = shared.producers_settings(0)
    assert first == {
        "batch_size": 256 * 1024,
        "bootstrap_servers": "a:1",
        "client_id": "me",
        "linger_ms": 1,
        "transactional_id": "billing-1",
    }
    assert second == {**first, "transactional_id": "billing-1-turn"}
    names = [job(workers=3).producers_settings(worker)[0]["transactional_id"] for worker in range(3)]
    assert names == ["billing-1", "billing-1-1", "billing-1-2"]
    with pytest.raises(InvalidConfig, match="transactional_id"):
        job(producer={"transactional.id": "another"}).producers_settings(0)
