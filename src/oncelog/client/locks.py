"""The lock of an accumulator: one that compiled code takes without a Python call, where it was built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    QuickLock: Any = None
else:
    try:
        from oncelog.client._lock import QuickLock
    except ImportError:
        QuickLock = None


def new_lock(plain: Callable[[], Any]) -> Any:
    """A quick lock, or a `plain` one where none was built."""
    return plain() if QuickLock is None else QuickLock()


def as_quick_lock(lock: Any) -> Any:
    """The lock itself if it is of the quick kind, else None."""
    return lock if QuickLock is not None and isinstance(lock, QuickLock) else None
