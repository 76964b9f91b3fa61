"""Tickets: what a coordinator is given with a request, and gives back with the answer.

Owns the difference between an answer that comes at once and one that comes later. Never looks into either.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.broker.request import Answer, Pending
from oncelog.wire.codec import Message


class Ticket:
    """One request to one coordinator. Settled once; `api_key` and `body` tell what shape a refusal must have."""

    __slots__ = ("_pending", "answer", "api_key", "body", "deliver", "version")

    def __init__(self, api_key: int, version: int, body: Message) -> None:
        self.api_key = api_key
        self.version = version
        self.body = body
        self.answer: Message | None = None
        self.deliver: Callable[[Message], None] | None = None
        self._pending: Pending | None = None

    def attempt(self, step: Callable[[], None]) -> None:
        """Do something that may settle it, now or in a callback, when nobody else could answer for a failure."""
        if self._pending is None:
            step()
        else:
            self._pending.attempt(step)

    def settle(self, answer: Message) -> None:
        self.answer = answer
        if self.deliver is not None:
            self.deliver(answer)

    def result(self, forget: Callable[[Ticket], None]) -> Answer:
        """The answer, or the promise of it; `forget` is told if nobody is left to read it."""
        if self.answer is not None:
            return self.answer
        pending = self._pending = Pending(abandon=lambda: forget(self))
        self.deliver = lambda answer: pending.attempt(lambda: pending.complete(answer))
        return pending


class Gathering:
    """The parts of a request that concerns several coordinators; the answer leaves when all of them have theirs."""

    def __init__(self, merge: Callable[[list[Message]], Message]) -> None:
        self._merge = merge
        self._tickets: list[Ticket] = []
        self._unsettled = 0
        self._pending: Pending | None = None

    def add(self, ticket: Ticket) -> None:
        ticket.deliver = self._settled
        self._tickets.append(ticket)
        self._unsettled += 1

    def result(self) -> Answer:
        """Once every part has been asked."""
        if not self._unsettled:
            return self._whole()
        self._pending = Pending()
        return self._pending

    def _settled(self, _: Message) -> None:
        self._unsettled -= 1
        if self._pending is not None and not self._unsettled:
            pending = self._pending
            pending.attempt(lambda: pending.complete(self._whole()))

    def _whole(self) -> Message:
        return self._merge([ticket.answer for ticket in self._tickets if ticket.answer is not None])
