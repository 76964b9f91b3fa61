"""Tickets: what comes of a failure after the coordinator has answered."""

from __future__ import annotations

import pytest

from oncelog.broker.coordinated.ticket import Gathering, Ticket
from oncelog.broker.request import FAILED, Pending
from oncelog.wire.codec import Message


def test_a_merge_that_fails_ends_the_connection() -> None:
    def failing(_: list[Message]) -> Message:
        raise ZeroDivisionError

    gathering, ticket = Gathering(failing), Ticket(0, 0, {})
    gathering.add(ticket)
    pending = gathering.result()
    assert isinstance(pending, Pending)
    ended: list[object] = []
    pending.on_complete = ended.append
    ticket.settle({})
    assert ended == [FAILED]


def test_what_a_handler_cannot_add_ends_the_connection() -> None:
    def failing(_: Message) -> None:
        raise ZeroDivisionError

    ticket = Ticket(0, 0, {})
    pending = ticket.result(lambda _: None)
    assert isinstance(pending, Pending)
    ended: list[object] = []
    pending.on_complete, pending.amend = ended.append, failing
    ticket.settle({})
    assert ended == [FAILED]


def test_a_failure_before_it_is_settled_ends_the_connection() -> None:
    def failing() -> None:
        raise ZeroDivisionError

    ticket = Ticket(0, 0, {})
    with pytest.raises(ZeroDivisionError):
        ticket.attempt(failing)  # still in the handler: the dispatcher answers
    pending = ticket.result(lambda _: None)
    assert isinstance(pending, Pending)
    ended: list[object] = []
    pending.on_complete = ended.append
    ticket.attempt(failing)
    assert ended == [FAILED]
