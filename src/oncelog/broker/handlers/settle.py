"""How a handler that changes metadata ends: a plan is proposed, and when it is true each item is answered.

The answers of these APIs have no error for the whole. If nothing can be changed, every item that would have succeeded
must say so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oncelog.broker.request import Answer, Request, promised
from oncelog.controller.state import Outcome
from oncelog.errors import KafkaError

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

T = TypeVar("T")


def settle(
    broker: BrokerState,
    request: Request,
    plan: Callable[[], Outcome[T]],
    answer: Callable[[T], Answer],
    *,
    spoil: Callable[[T, KafkaError], T],
    refuse: Callable[[KafkaError], T],
) -> Answer:
    """The answer that is true then: to the plan alone if the client only asked, else to the durable change. `spoil`
    puts an error in the place of every success; `refuse` answers if there is not even a plan."""
    is_asked_only = request.body.get("validate_only", False)

    def planned() -> Outcome[T]:
        outcome = plan()
        return outcome._replace(records=[]) if is_asked_only else outcome

    def begin(deliver: Callable[[Callable[[], Answer]], None]) -> None:
        def done(response: T | None, error: KafkaError | None) -> None:
            deliver(lambda: answer(_told(response, error)))

        def _told(response: T | None, error: KafkaError | None) -> T:
            if response is None:
                assert error is not None, "a plan has a response"
                return refuse(error)
            return response if error is None else spoil(response, error)

        broker.controller.propose(planned, request.now_ms, done)

    return promised(request, begin)
