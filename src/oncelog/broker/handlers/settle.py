"""How a handler that changes metadata ends: plan, commit, answer each item.

The answers of these APIs have no error for the whole. If the metadata log cannot be written, every item that would
have succeeded must say so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oncelog.broker.request import Request
from oncelog.controller.state import Outcome
from oncelog.errors import KafkaError, KafkaStorageError

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

T = TypeVar("T")


def settle(broker: BrokerState, request: Request, outcome: Outcome[T], spoil: Callable[[T, KafkaError], T]) -> T:
    """The response that is true now: of the plan alone if the client only asked, else of the durable change. `spoil`
    puts an error in the place of every success."""
    if request.body.get("validate_only", False):
        return outcome.response
    try:
        return broker.commit(outcome, request.now_ms)
    except KafkaStorageError as error:
        return spoil(outcome.response, error)
