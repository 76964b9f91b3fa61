"""News on their way to the user: what was not taken yet, and whether what was taken is done."""

from __future__ import annotations

from oncelog.client.membership.news import News, Revoking


class NewsBox:
    def __init__(self) -> None:
        self._untold: list[News] = []
        self._told: list[News] = []

    @property
    def is_clear(self) -> bool:
        """The user knows everything, and has done what follows from it."""
        return not self._untold and not self._told

    def put(self, news: News) -> None:
        self._untold.append(news)

    def take(self) -> list[News]:
        taken, self._untold = self._untold, []
        self._told += taken
        return taken

    def done(self) -> None:
        self._told = []

    def withdraw_revoking(self) -> None:
        """What was to be given up is lost: nobody need be asked any more."""
        self._untold = [news for news in self._untold if not isinstance(news, Revoking)]

    @property
    def being_revoked(self) -> bool:
        """The user is giving something up just now."""
        return any(isinstance(news, Revoking) for news in self._told)
