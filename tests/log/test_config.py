from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from oncelog.log.config import COMPACT, DELETE, LogConfig


def test_cleanup_policy() -> None:
    assert (LogConfig().deletes, LogConfig().compacts) == (True, False)
    both = LogConfig(cleanup_policy=frozenset({COMPACT, DELETE}))
    assert (both.deletes, both.compacts) == (True, True)


def test_a_config_is_a_value() -> None:
    assert LogConfig(segment_bytes=5) == LogConfig(segment_bytes=5)
    with pytest.raises(FrozenInstanceError):
        LogConfig().segment_bytes = 5  # type: ignore[misc]
