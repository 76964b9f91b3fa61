"""placeholder"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oncelog.errors import InvalidRegularExpression


class TopicPattern:
    def __init__(self, regex: str) -> None:
        try:
            self._pattern = re.compile(regex)
        except re.error as error:
            raise InvalidRegularExpression(str(error)) from error

    @classmethod
    def of(cls, regex: str) -> TopicPattern:
        return cls(regex)

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self._pattern.fullmatch(name))
