"""docs/*-settings.md cannot go stale: their tables are those that the code makes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tools.document_settings import PAGES, Page, field_docstrings

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.name)


@each_page
def test_the_page_is_what_the_code_says(page: Page) -> None:
    written = page.path.read_text()
    assert written == page.filled_in(written), "run `python -m tools.document_settings`"


@each_page
def test_every_setting_is_explained(page: Page) -> None:
    meanings = field_docstrings(page.config)
    assert list(meanings) == [each.name for each in fields(page.config)]
    assert all(text.endswith(".") for text in meanings.values())


def test_a_page_without_room_for_a_table_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no place for the table of settings"):
        PAGES[0].filled_in("nothing")
