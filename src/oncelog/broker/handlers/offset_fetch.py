"""OffsetFetch (key 9), versions 1-10.

Versions: 2 asks for all offsets of a group with null, and has an error for the whole; 5 adds leader epochs; 6 is
flexible; 7 may ask for stable offsets only (those that an open transaction is about to change are answered with
UNSTABLE_OFFSET_COMMIT); 8 asks for many groups; 9 lets members of KIP-848 groups say who they are; 10 names topics by
id. The rules are the coordinators'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.coordinated.in_steps import Told, offsets_told
from oncelog.broker.groups.answers import FIRST_FETCH_OF_MANY_GROUPS
from oncelog.broker.request import Answer, AnswerSteps, Request, Stepwise
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.OFFSET_FETCH

MAX_ENCODED_AT_ONCE: Final = 500
"""Partitions whose offsets are encoded without a look at the clock: a few milliseconds."""


def handle(broker: BrokerState, request: Request) -> Answer:
    if request.version >= FIRST_FETCH_OF_MANY_GROUPS:
        answer = broker.coordination.serve_many(request)
    else:
        answer = broker.coordination.serve(request, request.body["group_id"])
    if isinstance(answer, dict) and _count(answer) > MAX_ENCODED_AT_ONCE:
        return Stepwise(_in_steps(broker, request, answer))
    return answer


def _count(answer: Message) -> int:
    """Partitions that it tells of."""
    groups = answer.get("groups", (answer,))
    return sum(len(topic["partitions"]) for group in groups for topic in group.get("topics", ()))


def _in_steps(broker: BrokerState, request: Request, answer: Message) -> AnswerSteps:
    """The same, encoded one partition after the other."""
    if "groups" not in answer:
        yield from offsets_told(broker.metrics, request, answer)
        return answer
    groups = Told(broker.metrics, request, "groups")
    for group in answer["groups"]:
        yield from offsets_told(broker.metrics, request, group, "groups")
        groups.add(group)
    return {"groups": groups.encoded}
