"""What the calls of a consumer are made of: the steps that they yield, and those whom they tell.

A call is a generator. It yields what it cannot do itself (`Ask` the core and wait, `AwaitNews`, run a `Callback` of the
user's) and gets the result sent in; a shell runs it, by blocking or by awaiting.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from oncelog.client.consumer_core import Done, Offsets
from oncelog.client.fetch.lookups import Survey
from oncelog.client.topic_questions import TopicQuestion
from oncelog.errors import OncelogError
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition

T = TypeVar("T")


def _nothing_known() -> str | None:
    return None


class Ask(NamedTuple):
    """Run the command in the core's thread, and wait until it calls `done`. What it returns can be cancelled."""

    command: Callable[[int, Done], Survey | TopicQuestion | None]
    timeout_ms: int | None = None
    """None: `default.api.timeout.ms`."""
    is_wakeable: bool = True
    """`wakeup()` ends the wait."""
    why_silent: Callable[[], str | None] = _nothing_known
    """What is known about an answer that does not come, beside the brokers that cannot be reached. In any thread."""


class AwaitNews(NamedTuple):
    """Wait until something arrived after the first `seen` things that did."""

    seen: int
    deadline_ms: int | None
    is_wakeable: bool = True


class Callback(NamedTuple):
    """Run a function of the user's."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Step = Ask | AwaitNews | Callback
Call = Generator[Step, Any, T]


def simply(command: Callable[[int], Any]) -> Ask:
    """A command that is done when it has run."""

    def run(now_ms: int, done: Done) -> None:
        try:
            command(now_ms)
        except OncelogError as error:  # the user's mistake, not the core's
            done(error)
        else:
            done(None)

    return Ask(run, is_wakeable=False)


OnPartitions = Callable[[Any, list[TopicPartition]], Any]


class Listener(NamedTuple):
    """Whom to tell of the group's news. `on_lost` falls back to `on_revoked`."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None


class Interceptors:
    """See `oncelog.consumer.interceptors`; by default they do nothing."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return records

    def on_commit(self, offsets: Offsets) -> None: ...
