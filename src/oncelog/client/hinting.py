"""Calls and arguments that other libraries have and our classes do not: an AttributeError or a TypeError says what
takes their place (`foreign_calls`).

Nothing of this costs a call that is right: `Unlike` is an attribute of the class, found only by that name, and
arguments are looked at by calls that are made now and then. `__getattr__` would slow every attribute of such an object
down, before Python 3.12. Type checkers see none of it, so that they report what they always did.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

Kind = TypeVar("Kind", bound=type)
Call = TypeVar("Call", bound=Callable[..., Any])
Names = Mapping[str, str]


BY_POSITION = "*"
"""Among the remedies for arguments: what to write instead of any other call that does not fit, such as one with too
many of them by position."""


class Calls(NamedTuple):
    """Of a class of ours."""

    methods: Names
    arguments: Mapping[str, Names]
    """By method."""
    constructor: str
    """How one is made."""


class Unlike:
    """What another library has under this name: looking it up fails, and says what to do."""

    __slots__ = ("_name", "_remedy")

    def __init__(self, name: str, remedy: str) -> None:
        self._name = name
        self._remedy = remedy

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}(): {self._remedy}")


class Hinting(ABCMeta):
    """The class of classes that have such names, which dir() leaves out. A subclass may be abstract as well."""

    def __dir__(cls) -> Iterable[str]:
        return _without_unlike(cls, super().__dir__())


def _dir(self: Any) -> Iterable[str]:
    return _without_unlike(type(self), object.__dir__(self))


def _without_unlike(kind: type, names: Iterable[str]) -> list[str]:
    return [name for name in names if not isinstance(inspect.getattr_static(kind, name, None), Unlike)]


def with_hints(calls: Calls) -> Callable[[Kind], Kind]:
    """For a class that `Hinting` made."""

    def hinting(kind: Kind) -> Kind:
        for name, remedy in calls.methods.items():
            assert not hasattr(kind, name), f"{kind.__name__} has {name}"
            setattr(kind, name, Unlike(name, remedy))
        for name, remedies in calls.arguments.items():
            setattr(kind, name, _explained(getattr(kind, name), remedies, remedies.get(BY_POSITION)))
        kind.__init__ = _explained(kind.__init__, {}, calls.constructor)  # type: ignore[misc]
        kind.__dir__ = _dir  # type: ignore[assignment]
        return kind

    return hinting


def _explained(function: Callable[..., Any], remedies: Names, otherwise: str | None = None) -> Callable[..., Any]:
    """The same call, whose TypeError says what to write."""

    def explain(error: TypeError, named: Iterable[str]) -> None:
        """Returns if the mistake is not in the call itself, or none that we know of."""
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            return
        for name in named:
            if name in remedies:
                raise TypeError(f"{function.__qualname__}() takes no {name}: {remedies[name]}") from None
        if otherwise is not None:
            raise TypeError(f"{error}; {otherwise}") from None

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except TypeError as error:
            explain(error, named)
            raise

    @wraps(function)
    async def call_async(*arguments: Any, **named: Any) -> Any:
        try:
            called = function(*arguments, **named)
        except TypeError as error:
            explain(error, named)
            raise
        return await called

    return call_async if inspect.iscoroutinefunction(function) else call


def explained(remedies: Names) -> Callable[[Call], Call]:
    """For a function or a method that people get wrong now and then."""

    def explaining(function: Call) -> Call:
        return cast(Call, _explained(function, remedies, remedies.get(BY_POSITION)))

    return explaining


def explained_poll(remedies: Names) -> Callable[[Call], Call]:
    """The same for `Consumer.poll`, at a third of the price: that one is called again and again."""

    def explaining(poll: Call) -> Call:
        @wraps(poll)
        def call(self: Any, timeout: Any = 1.0, *, max_records: Any = None, **others: Any) -> Any:
            if others:
                name = next(iter(others))
                wrong = f"takes no {name}: {remedies[name]}" if name in remedies else _unexpected(name)
                raise TypeError(f"{poll.__qualname__}() {wrong}")
            return poll(self, timeout, max_records=max_records)

        return cast(Call, call)

    return explaining


def _unexpected(name: str) -> str:
    return f"got an unexpected keyword argument {name!r}"  # as Python says it
