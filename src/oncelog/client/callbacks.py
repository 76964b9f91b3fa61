"""Callbacks of users, looked at before they are needed: whether they can be called with what they will get, and whether
they expect it in that order.

confluent-kafka calls `on_delivery(err, msg)` and `on_commit(err, partitions)`, we call `on_delivery(metadata, error)`
and `on_commit(offsets, error)`: a callback that was brought along would take every success for an error. The names of
its parameters tell, and so they do of every other pair of arguments (`USUAL_NAMES`): a function is refused only where
they are clearly the other way round. Only functions of Python are looked into; of whatever else can be called nothing
is said.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from oncelog.client.arguments import shown

ERRORS = frozenset(
    {"err", "error", "e", "ex", "exc", "exception", "kafka_error", "kafkaerror", "failure", "_err", "_error"}
)
RESULTS = frozenset(
    {
        *("msg", "message", "record", "metadata", "record_metadata", "meta", "md", "result", "delivered", "_msg"),
        *("partitions", "offsets", "topic_partitions", "tps", "committed"),
    }
)
"""What the two parameters are called, in Kafka's world."""
USUAL_NAMES: Mapping[str, frozenset[str]] = {
    "error": ERRORS,
    "consumer": frozenset({"consumer", "kafka_consumer", "_consumer"}),
    "partitions": frozenset(
        {"partitions", "topic_partitions", "tps", "parts", "assigned", "revoked", "lost", "assignment", "_partitions"}
    ),
    "connection": frozenset(
        {"connection", "conn", "con", "cursor", "db", "database", "transaction", "session", "_connection", "_conn"}
    ),
    "record": frozenset({"record", "rec", "message", "msg", "event", "_record", "_message", "_msg"}),
}
"""What people call an argument; no name stands for two of them that are handed over together."""
MAX_KNOWN = 256


def check_callback(given: Any, name: str, first: str, second: str = "error") -> None:
    """That `given` can be called as `name(first, second)`, where the second is what went wrong. None is no callback."""
    if given is None:
        return
    if not callable(given):
        raise TypeError(f"{name} is a function of ({first}, {second}), not {shown(given)}")
    found = _parameters(given)
    if found is None:
        return
    names, _, _ = found
    if names and (names[0] in ERRORS or (len(names) > 1 and names[1] in RESULTS and names[0] not in RESULTS)):
        raise TypeError(
            f"{name} is called as ({first}, {second}), but this one takes ({', '.join(names)}), the other way"
            " round, as with confluent-kafka: it would take every success for an error; swap its parameters"
        )
    _check_count(given, name, (first, second))


def check_listener(given: Any, name: str) -> None:
    """That `given` can be told of partitions, as `name(consumer, partitions)`."""
    if given is None:
        return
    if not callable(given):
        raise TypeError(f"{name} is a function of (consumer, partitions), not {shown(given)}")
    names = swapped(given, ("consumer", "partitions"))
    if names is not None:
        raise TypeError(
            f"{name} is called as (consumer, partitions), but this one takes ({', '.join(names)}), the other way round:"
            " swap its parameters"
        )
    _check_count(given, name, ("consumer", "partitions"))


def _check_count(given: Any, name: str, arguments: tuple[str, ...]) -> None:
    names = taken_instead(given, len(arguments))
    if names is not None:
        raise TypeError(f"{name} is called as ({', '.join(arguments)}), but this one takes ({', '.join(names)})")


def swapped(given: Any, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """What a function takes whose two parameters are named the other way round; None if that is not clear."""
    if len(arguments) != 2:
        return None
    first, second = (USUAL_NAMES.get(each, frozenset()) for each in arguments)
    found = _parameters(given)
    names = () if found is None else found[0]
    if len(names) != 2:
        return None
    is_swapped = (names[0] in second and names[1] not in second) or (names[1] in first and names[0] not in first)
    return names if is_swapped else None


def taken_instead(given: Any, count: int) -> tuple[str, ...] | None:
    """What a function takes that cannot be called with so many arguments; None if it can, as far as is known."""
    found = _parameters(given)
    if found is None:
        return None
    names, least, most = found
    return names if least > count or (most is not None and most < count) else None


class DeliveryCallbacks:
    """Those that a producer has seen, so that each is looked into once: records are many, callbacks few."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        """By identity: a function's code is slow to compare."""

    def check(self, given: Any) -> None:
        """Raises TypeError for one that cannot be `on_delivery(metadata, error)`."""
        kind = kind_of(given)
        if id(kind) in self._known:
            return
        check_callback(given, "on_delivery", "metadata")
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[id(kind)] = kind


def kind_of(given: Any) -> Any:
    """What callbacks have in common that are as good as each other: the code of functions, which is one for all lambdas
    that a line makes, else their class."""
    if type(given) is partial:
        given = given.func
    code = getattr(given, "__code__", None)
    return type(given) if code is None else code


def _parameters(given: Any) -> tuple[tuple[str, ...], int, int | None] | None:
    """Names of what it takes by position, how many it needs, and how many it takes at most (None for any number)."""
    bound = 0
    while True:
        if isinstance(given, MethodType):
            bound += 1
            given = given.__func__
        elif isinstance(given, partial):
            if given.keywords:
                return None
            bound += len(given.args)
            given = given.func
        elif not isinstance(given, FunctionType) and isinstance(_call_of(given), FunctionType):
            bound += 1
            given = _call_of(given)
        else:
            break
    if not isinstance(given, FunctionType) or hasattr(given, "__wrapped__"):
        return None
    code = given.__code__
    names = code.co_varnames[bound : code.co_argcount]
    least = max(0, code.co_argcount - bound - len(given.__defaults__ or ()))
    return names, least, None if code.co_flags & inspect.CO_VARARGS else len(names)


def _call_of(given: Any) -> Any:
    """The method by which an object can be called."""
    return next((vars(kind)["__call__"] for kind in type(given).__mro__ if "__call__" in vars(kind)), None)
