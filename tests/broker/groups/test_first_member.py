"""A broker alone on a laptop: who joins a group first is let in at once, unless the config says otherwise."""

from __future__ import annotations

import pytest

from oncelog.log.storage import Storage
from tests.broker.support import Desk
from tests.support.faulty_storage import FaultyStorage
from tests.support.groups import join_request
from tests.support.raw import Message


@pytest.fixture
def storage() -> Storage:
    return FaultyStorage()


def answer_after(desk: Desk, waited_ms: int) -> Message | None:
    desk.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    required = desk.ask("join_group", 9, join_request("g"))
    waiting = desk.ask_later("join_group", 9, join_request("g", required["member_id"]))
    desk.alarms.pass_time(waited_ms)
    return waiting.message


def test_the_first_member_is_let_in_at_once(storage: Storage) -> None:
    answer = answer_after(Desk(storage, "/data", offsets_topic_num_partitions="1"), 1)
    assert answer is not None
    assert answer["error_code"] == 0


def test_a_config_makes_it_wait_for_others(storage: Storage) -> None:
    settings = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "3000"}
    assert answer_after(Desk(storage, "/data", **settings), 2_999) is None
