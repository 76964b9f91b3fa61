"""What `send()` and its futures raise, besides Kafka's own coded errors. Each says what to do."""

from __future__ import annotations

from oncelog.errors import OncelogError


class DeliveryFailed(OncelogError):
    """A record was accepted and could not be delivered.

    `may_be_written` tells the two cases apart: False, no broker has stored it, and it may be sent again; True, a broker
    may have stored it without being able to say so, and sending it again may double it.
    """

    def __init__(self, message: str, *, may_be_written: bool) -> None:
        super().__init__(message)
        self.may_be_written = may_be_written


class RefusedWithOthers(DeliveryFailed):
    """The record was in one batch with others that the broker refuses, so it was not stored either. Nothing is wrong
    with it, as far as the broker says: it may be sent again. The futures of the others tell what is wrong with them."""


class DeliveryTimedOut(DeliveryFailed, TimeoutError):
    """`delivery.timeout.ms` passed."""


class BufferExhausted(OncelogError, TimeoutError):
    """`buffer.memory` is full of records that the brokers have not taken yet. Slow down, raise `buffer.memory` or
    `max.block.ms`, or look at why the brokers are slow."""


class TopicUnavailable(OncelogError, TimeoutError):
    """The topic's partitions did not become known within `max.block.ms`."""


class ProducerClosed(OncelogError, RuntimeError):
    """The producer was closed, forked away from its thread, or gave up; make a new one."""
