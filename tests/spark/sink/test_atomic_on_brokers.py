"""`atomic=batch` on real brokers: one transaction for all slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.spark.moments import Moment
from oncelog.spark.sink.errors import Disagreement, NotWhole
from oncelog.spark.sink.task import Place, write_slot
from tests.spark.sink.on_brokers import Rig, arrow, numbered
from tests.spark.sink.test_on_brokers import await_state, decided_and_left, moments
from tests.spark.support.moments import Moments
from tests.support.confluent import create_topic
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers
__all__ = ["moments"]

PARTITIONS = 3


@pytest.fixture
def rig(broker: BrokerProcess, new_topic: Callable[[], str]) -> Rig:
    topic = new_topic()
    create_topic(broker, topic, partitions=PARTITIONS)
    return Rig(broker, topic, {"atomic": "batch"})


def keyless(name: str, count: int) -> list[tuple[None, str]]:
    return [(None, f"{name}-{number}") for number in range(count)]


def values(rig: Rig) -> list[str]:
    """Of rows that are visible when no transaction is open any more."""
    rig.check_nothing_is_open()
    return sorted(one.value().decode() for one in rig.visible())


def test_slots_share_one_transaction(rig: Rig) -> None:
    slots = [keyless(f"slot {number}", 10 + number) for number in range(PARTITIONS)]
    results = rig.write(rig.plan(), 0, *slots, [])
    assert len({one.outcome.transaction for one in results[:PARTITIONS]}) == 1  # type: ignore[union-attr]
    rig.commit(0, results)
    assert values(rig) == sorted(value for rows in slots for _, value in rows)
    rig.run(1, keyless("next", 5))
    rig.run(2, [])
    assert len(values(rig)) == 10 + 11 + 12 + 5


def test_a_batch_is_finished_or_written_again_as_a_whole(rig: Rig, moments: Moments) -> None:
    slots = [keyless(f"slot {number}", 10) for number in range(PARTITIONS)]
    for batch_id, moment in enumerate((Moment.COMMITTING, Moment.DECIDED, Moment.ENDED_ALL)):
        moments.arm(moment, "raise")
        with pytest.raises(OSError, match=moment.value):
            rig.run(batch_id, *slots)
        rig.run(batch_id, *slots)
    assert values(rig) == sorted(3 * [value for rows in slots for _, value in rows])


def test_a_whole_batch_is_salvaged(rig: Rig, moments: Moments) -> None:
    short = decided_and_left(rig, moments, keyless("a", 10), keyless("b", 10))
    await_state(short, f"{short.prefix}-batch", "CompleteAbort")
    short.plan()
    assert len(values(short)) == 20


def test_two_tasks_cannot_write_to_one_partition(rig: Rig) -> None:
    """The second finds numbers in use that it did not give."""
    plan = rig.plan()
    keyed = numbered("keyed", 30)
    with pytest.raises((NotWhole, Disagreement)):
        rig.commit(0, rig.write(plan, 0, keyed, [(key, f"again {value}") for key, value in keyed]))
    rig.run(0, keyed)
    rig.check(keyed)


def test_a_task_is_tried_once(rig: Rig) -> None:
    plan = rig.plan()
    place = Place(rig.query_id, 0, 0, attempt=1)
    with pytest.raises(NotWhole, match="speculation"):
        write_slot(rig.settings, plan, place, iter([arrow(numbered("row", 3))]))


def test_rows_of_an_attempt_that_failed_are_found(rig: Rig) -> None:
    plan = rig.plan()
    rig.write_slot(plan, 0, 1, keyless("lost", 5))
    with pytest.raises(NotWhole, match="tried more than once"):
        rig.commit(0, rig.write(plan, 0, keyless("kept", 5)))
    rig.run(0, keyless("kept", 5))
    assert len(values(replace(rig))) == 5
