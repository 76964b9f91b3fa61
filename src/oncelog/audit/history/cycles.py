"""Transactions that read what each other wrote, in a circle (G1c): each would have to come before all others.

Only reads make an order here. Kafka's transactions are not isolated from each other: their writes may alternate in
several partitions, and that two transactions' writes stand in different orders there is no violation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from oncelog.audit.history.model import Operation, Value
from oncelog.audit.history.report import Findings, Kind

MAX_CYCLES = 100
"""Cycles that are looked for, each with one pass over all transactions."""


def judge_cycles(operations: Sequence[Operation], writer_of: Mapping[Value, int], findings: Findings) -> None:
    """`writer_of` has the index in `operations` of who sent a value."""
    graph = _who_read_whom(operations, writer_of)
    for _ in range(MAX_CYCLES):
        cycle = _cycle(graph)
        if cycle is None:
            return
        findings.add(Kind.CYCLE, " was read by ".join(str(operations[index]) for index in cycle))
        for index in set(cycle):
            del graph[index]


def _who_read_whom(operations: Sequence[Operation], writer_of: Mapping[Value, int]) -> dict[int, set[int]]:
    both = {
        index
        for index, operation in enumerate(operations)
        if operation.is_transaction and operation.polls and operation.sends
    }
    graph = {}
    for index in both:
        read = {writer_of.get(value, -1) for records in operations[index].polls for value in records.values}
        if found := read & both:
            graph[index] = found
    return graph


def _cycle(graph: Mapping[int, set[int]]) -> list[int] | None:
    try:
        TopologicalSorter({index: [one for one in read if one in graph] for index, read in graph.items()}).prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1]  # each was read by the next; the first is also the last
        return cycle
    return None
