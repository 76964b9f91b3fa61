"""What the methods of a transaction raise. Each error says what to do next, in words and as `what_to_do`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from oncelog.errors import KafkaError, OncelogError
from oncelog.types import TopicPartition

WhatToDo = Literal["abort", "give up", "retry", "fix"]


class TransactionError(OncelogError):
    """Something about a transaction. `what_to_do` is for programs, the message for people."""

    what_to_do: ClassVar[WhatToDo]


class AbortNeeded(TransactionError):
    """The transaction cannot be committed any more: call `abort()`, then begin another one with the same records."""

    what_to_do: ClassVar[WhatToDo] = "abort"
    refused: Mapping[TopicPartition, KafkaError] = MappingProxyType({})
    """Partitions that may not be part of any transaction of this producer, if that is the reason."""


class TransactionFailed(TransactionError):
    """This producer can never commit again: close it. Whatever was not committed is, or will be, aborted."""

    what_to_do: ClassVar[WhatToDo] = "give up"


class TransactionalProducerFenced(TransactionFailed):
    """Another producer with the same transactional id has started, or this one's transaction timed out."""


class OutcomeUnknown(TransactionError, TimeoutError):
    """The answer did not come in time; the request goes on. Call the same method again to hear how it ended."""

    what_to_do: ClassVar[WhatToDo] = "retry"


class TransactionMisuse(TransactionError, RuntimeError):
    """A call at the wrong time, such as `commit()` without `begin()`. Nothing has changed."""

    what_to_do: ClassVar[WhatToDo] = "fix"
