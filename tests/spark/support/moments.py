"""The test's side of `oncelog.spark.moments`: say what happens at which moment, and see that it came."""

from __future__ import annotations

from pathlib import Path

from oncelog.spark.moments import VARIABLE, Moment
from tests.support.patience import eventually

LIMIT_S = 150.0


class Moments:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self.folder)}

    def arm(self, moment: Moment, order: str = "hold") -> None:
        """The next process that comes there does what the order says. Whole at once: a process may look any time."""
        for name in (f"{moment}.reached", f"{moment}.release"):
            (self.folder / name).unlink(missing_ok=True)
        draft = self.folder / f".{moment}"
        draft.write_text(order)
        draft.rename(self.folder / moment)

    def disarm(self, moment: Moment) -> None:
        (self.folder / moment).unlink(missing_ok=True)

    def clear(self) -> None:
        """Whoever is held goes on."""
        for moment in Moment:
            self.disarm(moment)
            self.release(moment)

    def release(self, moment: Moment) -> None:
        (self.folder / f"{moment}.release").touch()

    def reached(self, moment: Moment) -> int | None:
        """The id of the process that came there."""
        try:
            text = (self.folder / f"{moment}.reached").read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None

    def await_reached(self, moment: Moment) -> int:
        eventually(lambda: self.reached(moment) is not None, f"a process comes to {moment.value!r}", LIMIT_S)
        pid = self.reached(moment)
        assert pid is not None
        return pid
