"""Whether an exception is what a signal's handler of the user's raised, while something else was waited for."""

from __future__ import annotations

import signal
from types import CodeType

from oncelog.once.database import causes


def raised_by_handler(error: BaseException) -> BaseException | None:
    """The handler's own exception: libraries wrap it in theirs, as if a server had failed."""
    codes = _handlers()
    if not codes:
        return None
    for each in causes(error):
        traceback = each.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code in codes:
                return each
            traceback = traceback.tb_next
    return None


def _handlers() -> set[CodeType]:
    """The code of those that are installed now, except Python's own."""
    found = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if handler is signal.default_int_handler or not callable(handler):
            continue
        function = getattr(handler, "__func__", handler)
        code = getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
