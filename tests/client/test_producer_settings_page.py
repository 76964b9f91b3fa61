"""docs/producer-settings.md cannot go stale: its tables are those that the code makes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from oncelog.client.producer_config import ProducerConfig
from tools.document_settings import PAGE, field_docstrings, filled_in


def test_the_page_is_what_the_code_says() -> None:
    written = PAGE.read_text()
    assert written == filled_in(written), "run `python -m tools.document_settings`"


def test_every_setting_is_explained() -> None:
    meanings = field_docstrings(ProducerConfig)
    assert list(meanings) == [each.name for each in fields(ProducerConfig)]
    assert all(text.endswith(".") for text in meanings.values())


def test_a_page_without_room_for_a_table_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no place for the table of settings"):
        filled_in("nothing")
