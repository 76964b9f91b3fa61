from __future__ import annotations

import pytest

from oncelog.client.spool import journal

TINY_JOURNAL_BYTES = 500


@pytest.fixture(autouse=True)
def tiny_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they roll within a test."""
    monkeypatch.setattr(journal, "ROLL_BYTES", TINY_JOURNAL_BYTES)
