"""Functions that users hand over: whether they can be called as they will be, found out before the first record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from oncelog.client.callbacks import swapped


def objection_to(function: Any, arguments: Sequence[str], *, may_be_async: bool = False) -> str | None:
    """Why the function cannot be called with these arguments, in words; None if nothing is known against it.

    objection_to(lambda record: None, ("connection", "record"))
    # "it is called as f(connection, record), but too many positional arguments"
    """
    call = f"f({', '.join(arguments)})"
    if not callable(function):
        return f"{function!r} cannot be called; it is to be a function, called as {call}"
    if not may_be_async and _is_coroutine_function(function):
        return f"{_name(function)} is a coroutine function, which is not awaited here; give a plain one, {call}"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of something that is written in C, and does not tell
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"{_name(function)}{signature} is called as {call}: {error}"
    if swapped(function, arguments) is not None:
        return f"{_name(function)}{signature} is called as {call}, the other way round: swap its parameters"
    return None


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))
