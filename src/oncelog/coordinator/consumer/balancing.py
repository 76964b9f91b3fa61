"""Evening out who reads how much, where not every member may read every topic.

Owns one rule: a partition moves from a member to another that may read its topic, as long as that one has at least two
partitions less. Every move makes the loads more even, so the moves come to an end. Never takes a partition from a
member for any other reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from uuid import UUID

Placed = dict[str, list[tuple[UUID, int]]]
"""What each member has."""

MAX_ROUNDS = 32
"""How often the topics are gone through. Two or three rounds settle a group; the bound keeps a contrived one cheap."""


def balance(placed: Placed, free: Sequence[tuple[UUID, int]], readers: Mapping[UUID, Sequence[str]]) -> Placed:
    """`placed` with what is free given out, and evened out. Changes `placed`, and returns it."""
    loads = {member_id: len(partitions) for member_id, partitions in placed.items()}
    topics = sorted(readers, key=lambda topic_id: (len(readers[topic_id]), topic_id))
    waiting: dict[UUID, list[tuple[UUID, int]]] = {}
    for place in free:
        waiting.setdefault(place[0], []).append(place)
    for topic_id in topics:
        _give_out(waiting.get(topic_id, []), readers[topic_id], placed, loads)
    for _ in range(MAX_ROUNDS):
        moves = sum(_even_out(topic_id, readers[topic_id], placed, loads) for topic_id in topics)
        if not moves:
            break
    return placed


def _give_out(places: list[tuple[UUID, int]], members: Sequence[str], placed: Placed, loads: dict[str, int]) -> None:
    lightest = [(loads[member_id], member_id) for member_id in members]
    heapify(lightest)
    for place in places:
        load, member_id = heappop(lightest)
        placed[member_id].append(place)
        loads[member_id] = load + 1
        heappush(lightest, (load + 1, member_id))


def _even_out(topic_id: UUID, members: Sequence[str], placed: Placed, loads: dict[str, int]) -> int:
    """Moves partitions of one topic from its most to its least loaded readers; how many moved."""
    low = min(loads[member_id] for member_id in members)
    givers = [member_id for member_id in members if loads[member_id] >= low + 2]
    movable = {
        member_id: places
        for member_id in givers
        if (places := [place for place in placed[member_id] if place[0] == topic_id])
    }
    if not movable:
        return 0
    heaviest = [(-loads[member_id], member_id) for member_id in movable]
    lightest = [(loads[member_id], member_id) for member_id in members]
    heapify(heaviest)
    heapify(lightest)
    moves = 0
    while heaviest:
        giver_load, giver = heappop(heaviest)
        taker_load, taker = heappop(lightest)
        if taker_load != loads[taker]:
            heappush(lightest, (loads[taker], taker))
            heappush(heaviest, (giver_load, giver))
            continue
        if loads[giver] - taker_load < 2:
            break
        place = movable[giver].pop()
        placed[giver].remove(place)
        placed[taker].append(place)
        loads[giver] -= 1
        loads[taker] += 1
        moves += 1
        heappush(lightest, (loads[taker], taker))
        if movable[giver]:
            heappush(heaviest, (-loads[giver], giver))
    return moves
