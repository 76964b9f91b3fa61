"""Violations to plant in a valid history: each takes a world that was not drained yet, and breaks one promise."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from oncelog.audit.history.model import GroupOffset, Operation, Outcome, Records, Value
from oncelog.audit.history.report import Kind
from oncelog.types import NO_OFFSET, TopicPartition
from tests.audit.history.world import GROUP, INPUTS, OUTPUTS, World

Plant = Callable[[World], None]
PLANTS: dict[str, tuple[Plant, set[Kind]]] = {}
"""By name: how to plant it, and all that a checker must find then."""


def finds(*kinds: Kind) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        PLANTS[plant.__name__] = (plant, set(kinds))
        return plant

    return register


def transactions(world: World, outcome: Outcome, *, visible: bool) -> list[Operation]:
    """Transactions of that outcome which can, or cannot, be read."""
    logs = world.logs
    return [
        one
        for one in world.operations
        if one.is_transaction
        and one.outcome is outcome
        and logs[one.sends[0].partition].entries[one.sends[0].offsets[0]].is_visible == visible
    ]


def one_with_parts(world: World, outcome: Outcome) -> Operation:
    found = [one for one in transactions(world, outcome, visible=True) if len(values_of(one)) > 1]
    return world.chance.choice(found)


def values_of(operation: Operation) -> list[Value]:
    return [value for records in operation.sends for value in records.values]


def hide(world: World, values: Collection[Value]) -> None:
    """Nobody ever polled them."""
    for index, operation in enumerate(world.operations):
        polls = tuple(without(records, values) for records in operation.polls)
        world.operations[index] = replace(operation, polls=polls)


def without(records: Records, values: Collection[Value]) -> Records:
    kept = [pair for pair in zip(records.values, records.offsets, strict=True) if pair[0] not in values]
    return Records(records.partition, tuple(value for value, _ in kept), tuple(offset for _, offset in kept))


def store(world: World, partition: TopicPartition) -> Records:
    """A new record that the final reader will see."""
    value = world.new_value()
    return Records(partition, (value,), (world.logs[partition].append(value)[0],))


def read(world: World, process: str, *polls: Records) -> None:
    for number, records in enumerate(polls, 1):
        world.note(Operation(process, number, world.now(), world.now(), Outcome.OK, polls=(records,)))


def write(
    world: World, process: str, *sends: Records, polls: tuple[Records, ...] = (), commits: int | None = None
) -> None:
    offsets = () if commits is None else (GroupOffset(GROUP, INPUTS[0], commits),)
    world.note(
        Operation(
            process, 1, world.now(), world.now(), Outcome.OK, is_transaction=bool(polls), polls=polls, sends=sends,
            offset_commits=offsets,
        )
    )  # fmt: skip


def consumed(world: World) -> int:
    """Records of the first input that its group has consumed: at least two."""
    world.settle()
    partition = INPUTS[0]
    end = max(world.committed[partition], 0)
    new = [store(world, partition) for _ in range(len(world.logs[partition].entries), end + 2)]
    write(world, "filler", *new)
    polls = tuple(
        Records(partition, (world.logs[partition].entries[offset].value,), (offset,)) for offset in (end, end + 1)
    )
    write(world, "consumer", store(world, OUTPUTS[0]), polls=polls, commits=end + 2)
    world.committed[partition] = end + 2
    return end + 2


@finds(Kind.LOST_WRITE)
def a_whole_transaction_is_lost(world: World) -> None:
    world.drain()
    hide(world, values_of(world.chance.choice(transactions(world, Outcome.OK, visible=True))))


@finds(Kind.LOST_WRITE)
def a_plain_record_is_lost(world: World) -> None:
    lost, later = store(world, OUTPUTS[1]), store(world, OUTPUTS[1])
    write(world, "writer", lost, later)
    world.drain()
    hide(world, lost.values)


@finds(Kind.LOST_WRITE, Kind.TORN_TRANSACTION)
def a_part_of_a_committed_transaction_is_lost(world: World) -> None:
    world.drain()
    hide(world, values_of(one_with_parts(world, Outcome.OK))[:1])


@finds(Kind.TORN_TRANSACTION)
def a_part_of_an_unknown_transaction_is_visible(world: World) -> None:
    world.drain()
    hide(world, values_of(one_with_parts(world, Outcome.UNKNOWN))[-1:])


@finds(Kind.DUPLICATE)
def a_value_is_stored_twice(world: World) -> None:
    committed = world.chance.choice(transactions(world, Outcome.OK, visible=True)).sends[0]
    world.logs[committed.partition].append(committed.values[0])
    world.drain()


@finds(Kind.PHANTOM)
def a_value_is_in_another_partition(world: World) -> None:
    stray = store(world, OUTPUTS[1])
    write(world, "writer", Records(OUTPUTS[0], stray.values, (NO_OFFSET,)))
    world.drain()


@finds(Kind.PHANTOM)
def a_value_that_nobody_sent(world: World) -> None:
    write(world, "writer", store(world, OUTPUTS[2]))
    store(world, OUTPUTS[2])
    world.drain()


@finds(Kind.ABORTED_READ)
def an_aborted_value_is_read(world: World) -> None:
    aborted = world.chance.choice(transactions(world, Outcome.FAILED, visible=False)).sends[0]
    read(world, "unlucky reader", Records(aborted.partition, aborted.values[:1], aborted.offsets[:1]))
    world.drain()


@finds(Kind.INCONSISTENT_OFFSET)
def an_offset_has_two_values(world: World) -> None:
    real = world.chance.choice(transactions(world, Outcome.OK, visible=True)).sends[0]
    other = (world.new_value(),)
    unstored = Records(real.partition, other, (NO_OFFSET,))
    world.note(Operation("unlucky", 1, world.now(), None, Outcome.UNKNOWN, sends=(unstored,)))
    read(world, "reader of another log", Records(real.partition, other, real.offsets[:1]))
    world.drain()


@finds(Kind.NONMONOTONIC_POLL)
def polls_go_back(world: World) -> None:
    first, second = store(world, OUTPUTS[0]), store(world, OUTPUTS[0])
    write(world, "writer", first, second)
    read(world, "reader", second, first)
    world.drain()


@finds(Kind.POLL_SKIP)
def a_poll_skips_a_record(world: World) -> None:
    stored = [store(world, OUTPUTS[0]) for _ in range(3)]
    write(world, "writer", *stored)
    read(world, "reader", stored[0], stored[2])
    world.drain()


@finds(Kind.NONMONOTONIC_SEND)
def sends_are_stored_in_another_order(world: World) -> None:
    first, second = store(world, OUTPUTS[0]), store(world, OUTPUTS[0])
    write(world, "racer", second, first)
    world.drain()


@finds(Kind.NONMONOTONIC_OFFSET_COMMIT)
def an_offset_commit_goes_back(world: World) -> None:
    write(world, "latecomer", commits=consumed(world) - 1)
    world.drain()


@finds(Kind.LOST_OFFSET_COMMIT)
def an_offset_commit_is_lost(world: World) -> None:
    found = world.chance.choice([NO_OFFSET, consumed(world) - 1])
    offsets = (GroupOffset(GROUP, INPUTS[0], found),)
    world.note(Operation("asker", 1, world.now(), world.now(), Outcome.OK, offset_reads=offsets))
    world.drain()


@finds(Kind.PHANTOM_OFFSET_COMMIT)
def an_aborted_offset_commit_is_read(world: World) -> None:
    offsets = (GroupOffset(GROUP, INPUTS[0], consumed(world) + 1),)
    aborted = Operation("aborter", 1, world.now(), world.now(), Outcome.FAILED, True, offset_commits=offsets)
    world.note(aborted)
    world.note(Operation("asker", 1, world.now(), world.now(), Outcome.OK, offset_reads=offsets))
    world.drain()


@finds(Kind.CONSUMED_TWICE)
def a_record_is_consumed_twice(world: World) -> None:
    end = consumed(world)
    again = Records(INPUTS[0], (world.logs[INPUTS[0]].entries[end - 1].value,), (end - 1,))
    write(world, "zombie", store(world, OUTPUTS[0]), polls=(again,), commits=end)
    world.drain()


@finds(Kind.NEVER_CONSUMED)
def a_record_is_never_consumed(world: World) -> None:
    end = consumed(world)
    new = [store(world, INPUTS[0]) for _ in range(len(world.logs[INPUTS[0]].entries), end + 2)]
    write(world, "filler 2", *new)
    polled = Records(INPUTS[0], (world.logs[INPUTS[0]].entries[end + 1].value,), (end + 1,))
    write(world, "hasty", store(world, OUTPUTS[0]), polls=(polled,), commits=end + 2)
    world.committed[INPUTS[0]] = end + 2
    world.drain()


@finds(Kind.CYCLE)
def two_transactions_read_each_other(world: World) -> None:
    first, second = store(world, OUTPUTS[0]), store(world, OUTPUTS[1])
    write(world, "chicken", first, polls=(second,))
    write(world, "egg", second, polls=(first,))
    world.drain()


@finds(Kind.CYCLE)
def a_transaction_reads_itself(world: World) -> None:
    own = store(world, OUTPUTS[0])
    write(world, "snake", own, polls=(own,))
    world.drain()
