"""What a transactional producer does on each answer of its coordinators, row by row of the table, by both protocols."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.membership.coordinator_link import COURTESY_MS
from oncelog.client.transaction.command import Kind
from oncelog.client.transaction.conversation import SLOW_AFTER_MS
from oncelog.client.transaction.model import Phase
from oncelog.client.transaction_errors import TransactionalProducerFenced, TransactionFailed
from oncelog.wire.api import ApiKey
from tests.sim.transaction_world import GROUP, SOURCE, TransactionWorld, all_or_nothing, visible

INIT, ADD_PARTITIONS, ADD_OFFSETS = ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN
COMMIT_OFFSETS, END, LOOK = ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.DESCRIBE_TRANSACTIONS

RETRIABLE = (3, 7, 14, 15, 16, 51)
FENCED = (47, 90)
FATAL = (48, 49, 53, 31, 35, 42)
ABORTABLE = (120, 59, 29)
OFFSETS_ABORTABLE = (30, 22, 25, 82, 113)

ONLY_PROTOCOL_1 = (ADD_PARTITIONS, ADD_OFFSETS)


def asks(*apis: ApiKey) -> list[Any]:
    return [
        pytest.param(protocol, api, id=f"{api.name}-{protocol}")
        for protocol in (1, 2)
        for api in apis
        if protocol == 1 or api not in ONLY_PROTOCOL_1
    ]


def ready(protocol: int) -> TransactionWorld:
    world = TransactionWorld(protocol=protocol)
    world.until_idle()
    assert world.is_open
    return world


def play(protocol: int, api: ApiKey, code: int) -> TransactionWorld:
    """A transaction with records and offsets, in which this question is answered with the code once. Stops where the
    user has to decide."""
    if api == INIT:
        world = TransactionWorld(protocol=protocol)
        world.cluster.refuse(api, code)
    else:
        world = ready(protocol)
        world.cluster.refuse(api, code)
        world.send(0)
        world.pass_time(300, healthy=True)
        world.commit_offset(7)
        world.pass_time(300, healthy=True)
        world.listen()
        if world.is_open and world.transaction.abort_reason is None:
            world.end(Kind.COMMIT)
        world.pass_time(200, healthy=True)
    return world


def finish(world: TransactionWorld) -> None:
    world.finish()
    world.cluster.write_markers()


@pytest.mark.parametrize(("protocol", "api"), asks(INIT, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END))
@pytest.mark.parametrize("code", RETRIABLE)
def test_retriable_is_asked_again(protocol: int, api: ApiKey, code: int) -> None:
    world = play(protocol, api, code)
    finish(world)
    assert world.fatal is None
    assert {told.outcome for told in world.history if told.values} == {Kind.COMMIT}
    all_or_nothing(world)


@pytest.mark.parametrize("protocol", [1, 2])
def test_people_hear_why_offsets_are_refused_for_long(protocol: int, caplog: pytest.LogCaptureFixture) -> None:
    world = ready(protocol)
    world.send(0)
    world.commit_offset(7)
    world.cluster.refuse(COMMIT_OFFSETS, *[3] * 1_000)
    world.listen()
    world.end(Kind.COMMIT)
    world.pass_time(SLOW_AFTER_MS // 2, healthy=True)
    assert caplog.messages == [], "it may pass"
    world.pass_time(SLOW_AFTER_MS, healthy=True)
    [warning] = caplog.messages
    assert f"UNKNOWN_TOPIC_OR_PARTITION for the offsets of {SOURCE} (was the topic deleted?); asked again" in warning


@pytest.mark.parametrize(("protocol", "api"), asks(ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END))
@pytest.mark.parametrize("code", ABORTABLE)
def test_abortable_loses_the_transaction_and_no_other(protocol: int, api: ApiKey, code: int) -> None:
    world = play(protocol, api, code)
    finish(world)
    assert world.fatal is None
    first, *_, last = [told for told in world.history if told.values]
    assert (first.outcome, last.outcome) == (Kind.ABORT, Kind.COMMIT)
    all_or_nothing(world)
    assert len(visible(world.cluster)[next(iter(world.cluster.partitions))]) == 1


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("code", OFFSETS_ABORTABLE)
def test_a_member_that_lost_its_place_must_abort(protocol: int, code: int) -> None:
    world = play(protocol, COMMIT_OFFSETS, code)
    finish(world)
    assert world.fatal is None
    assert world.history[0].outcome is Kind.ABORT
    assert GROUP.group_id not in world.cluster.offsets


@pytest.mark.parametrize(("protocol", "api"), asks(INIT, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END))
@pytest.mark.parametrize("code", [*FENCED, *FATAL])
def test_fatal_ends_the_producer(protocol: int, api: ApiKey, code: int) -> None:
    world = play(protocol, api, code)
    for _ in range(20):
        world.pass_time(100, healthy=True)
        world.step()
    assert isinstance(world.fatal, TransactionalProducerFenced if code in FENCED else TransactionFailed)
    assert all(sent.is_reported for sent in world.sent)
    with pytest.raises(TransactionFailed):
        world.transaction.begin()
    with pytest.raises(TransactionFailed):
        world.transaction.ask_end(Kind.ABORT, lambda: None)


@pytest.mark.parametrize("protocol", [1, 2])
def test_by_protocol_1_the_epoch_stays_and_by_protocol_2_it_grows(protocol: int) -> None:
    world = ready(protocol)
    assert world.core.idempotence is not None
    epochs = []
    for _ in range(3):
        world.send(0)
        world.end(Kind.COMMIT)
        world.until_idle()
        assert world.core.idempotence.identity is not None
        epochs.append(world.core.idempotence.identity.producer_epoch)
    assert epochs == ([0, 0, 0] if protocol == 1 else [1, 2, 3])


def test_by_protocol_1_an_abort_that_left_numbers_behind_brings_a_new_epoch() -> None:
    world = ready(1)
    world.send(0)
    world.pass_time(200, healthy=True)
    world.refuse(0, 29)
    world.send(0)
    world.pass_time(200, healthy=True)
    assert world.transaction.abort_reason is not None
    world.end(Kind.ABORT)
    world.until_idle()
    finish(world)
    assert world.core.idempotence is not None
    assert world.core.idempotence.bump_reason is None
    all_or_nothing(world)


def test_an_empty_transaction_asks_nobody() -> None:
    world = ready(2)
    asked = world.core.network.requests_sent
    for kind in (Kind.COMMIT, Kind.ABORT):
        world.end(kind)
        world.step()
        assert world.transaction.phase is Phase.OPEN
    assert world.core.network.requests_sent == asked


def spied(world: TransactionWorld) -> list[ApiKey]:
    """What the coordinator is asked from now on, by the producer and by leaders."""
    asked, ask = [], world.cluster.rig.ask

    def noted(api_key: ApiKey, *rest: Any) -> Any:
        asked.append(api_key)
        return ask(api_key, *rest)

    world.cluster.rig.ask = noted  # type: ignore[method-assign]
    return asked


def held_up() -> TransactionWorld:
    """A transaction whose first record was answered late is being committed."""
    world = TransactionWorld(linger_ms=0)
    world.until_idle()
    world.send(0)
    world.end(Kind.COMMIT)
    world.until_idle()
    world.cluster.write_markers()
    world.send(0)
    world.now_ms += 100
    world.settle_down()
    world.end(Kind.COMMIT)
    return world


def exchange(world: TransactionWorld) -> None:
    for index in range(len(world.lines)):
        world.serve(index)
    for _ in range(len(world.lines)):
        world.answer(0)


def test_after_one_that_was_held_up_the_next_waits_until_the_last_is_complete() -> None:
    world = held_up()
    asked = spied(world)
    exchange(world)
    world.step()
    assert world.send(0)
    for _ in range(3):
        exchange(world)
    assert asked == [END, *[LOOK] * 3]
    world.cluster.write_markers()
    exchange(world)
    exchange(world)
    assert asked[-2:] == [LOOK, ADD_PARTITIONS]
    finish(world)
    all_or_nothing(world)


def test_a_look_that_is_lost_holds_nothing_up_for_long() -> None:
    world = held_up()
    exchange(world)
    world.step()
    assert world.send(0)
    for index in range(len(world.lines)):
        world.cut(index, requests_arrive=False)
    finish(world)
    assert world.fatal is None
    all_or_nothing(world)


@pytest.mark.parametrize("lost", [None, COMMIT_OFFSETS])
def test_a_flush_waits_for_records_and_offsets_and_not_for_the_end(lost: ApiKey | None) -> None:
    world = TransactionWorld(linger_ms=0)
    world.until_idle()
    asked = spied(world)
    if lost is not None:
        world.cluster.refuse(lost, 15)
    assert world.send(0)
    world.transaction.ask_offsets({SOURCE: OffsetAndMetadata(7)}, GROUP, lambda: None)
    world.end(Kind.COMMIT)
    flush = world.transaction.ask_flush(lambda: None)
    for _ in range(20):
        world.step()
        if flush.has_ended:
            break
        world.now_ms += 50
        exchange(world)
    assert flush.has_ended
    assert all(sent.is_reported for sent in world.sent)
    assert asked == [ADD_PARTITIONS, ADD_PARTITIONS], "of the records and of the offsets; the end leaves only now"
    finish(world)
    all_or_nothing(world)


def test_a_flush_of_what_is_lost_holds_nobody_up() -> None:
    world = ready(2)
    world.cluster.refuse(COMMIT_OFFSETS, 22)
    world.commit_offset(7)
    world.end(Kind.COMMIT)
    flush = world.transaction.ask_flush(lambda: None)
    world.until_idle()
    assert flush.has_ended
    again = world.transaction.ask_flush(lambda: None)
    world.pass_time(50)
    assert again.has_ended, "there is nothing under way"


# --- the end of the producer ------------------------------------------------------------------------------------------


def without_brokers(protocol: int, kind: Kind, *, in_flight: bool = False) -> TransactionWorld:
    """A transaction with a record that is stored, and perhaps one whose fate nobody knows; then all brokers go, and it
    is to be ended."""
    world = ready(protocol)
    world.send(0)
    world.pass_time(300, healthy=True)
    if in_flight:
        world.send(0)
        world.pass_time(50)
        assert any(line.requests for line in world.lines)
    for node_id in range(len(world.cluster.nodes)):
        world.cluster.stop(node_id)
    world._notice_ended()
    world.transaction.unheard(world.transaction.ask_end(kind, lambda: None))
    return world


def close(world: TransactionWorld, timeout_ms: int) -> int:
    """How long it took."""
    began_ms = world.now_ms
    world.core.close_at_ms = began_ms + timeout_ms
    world._poll()
    while not world.core.is_finished:
        assert world.now_ms < began_ms + 2 * timeout_ms
        world.pass_time(10)
    return world.now_ms - began_ms


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("in_flight", [False, True])
def test_nobody_waits_to_abort_where_no_coordinator_is(
    protocol: int, in_flight: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = without_brokers(protocol, Kind.ABORT, in_flight=in_flight)
    assert close(world, 120_000) == COURTESY_MS
    assert all(sent.is_reported for sent in world.sent)
    (told,) = [record.getMessage() for record in caplog.records if "transaction" in record.getMessage()]
    assert "its transaction could not be aborted now" in told
    assert "aborts it after transaction.timeout.ms (60000)" in told


def test_what_no_broker_has_heard_of_needs_no_end(caplog: pytest.LogCaptureFixture) -> None:
    world = ready(2)
    world.transaction.unheard(world.transaction.ask_end(Kind.ABORT, lambda: None))
    assert close(world, 120_000) == 0
    assert [record for record in caplog.records if "transaction" in record.getMessage()] == []


def test_a_commit_is_waited_for_as_long_as_closing_may_take(caplog: pytest.LogCaptureFixture) -> None:
    world = without_brokers(2, Kind.COMMIT)
    assert close(world, 20_000) == 20_000
    (told,) = [record.getMessage() for record in caplog.records if "transaction" in record.getMessage()]
    assert "closed before it heard whether its transaction is committed" in told


@pytest.mark.parametrize("protocol", [1, 2])
def test_an_abort_is_waited_for_while_somebody_is_there(protocol: int, caplog: pytest.LogCaptureFixture) -> None:
    world = ready(protocol)
    world.send(0)
    world.pass_time(300, healthy=True)
    world.cluster.refuse(END, *[51] * 10_000)
    world.transaction.unheard(world.transaction.ask_end(Kind.ABORT, lambda: None))
    world.core.close_at_ms = world.now_ms + 120_000
    world.pass_time(5 * COURTESY_MS, healthy=True)
    assert not world.core.is_finished, "the coordinator is there, and busy"
    world.heal()
    world.pass_time(COURTESY_MS, healthy=True)
    assert world.core.is_finished
    assert [record for record in caplog.records if "transaction" in record.getMessage()] == []


def test_a_coordinator_that_comes_back_in_time_hears_of_it(caplog: pytest.LogCaptureFixture) -> None:
    world = without_brokers(2, Kind.ABORT)
    world.core.close_at_ms = world.now_ms + 120_000
    world.pass_time(COURTESY_MS // 2)
    world.heal()
    world.pass_time(5_000, healthy=True)
    assert world.core.is_finished
    assert [record for record in caplog.records if "could not be aborted" in record.getMessage()] == []
    assert all(is_committed is False for _, is_committed in next(iter(world.cluster.partitions.values())).outcomes())
