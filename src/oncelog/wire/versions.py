"""Ranges of versions, as Kafka's message definitions write them: `3`, `0-12`, `9+`, `none`."""

from __future__ import annotations

from oncelog.named_tuple import NamedTuple

MAX_VERSION = 2**15 - 1


class VersionRange(NamedTuple):
    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str | None) -> VersionRange:
        if text is None or text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def includes(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def overlap(self, other: VersionRange) -> VersionRange | None:
        lowest, highest = max(self.lowest, other.lowest), min(self.highest, other.highest)
        return VersionRange(lowest, highest) if lowest <= highest else None

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = VersionRange(0, -1)
