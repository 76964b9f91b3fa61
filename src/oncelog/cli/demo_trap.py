"""A trap for the members of a group: the first that comes by is caught, and its process id noted for who has set it.

So a kill strikes where it hurts, by design and not by luck. The trap is a file: renaming it is what only one process
can do.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Trap:
    def __init__(self, path: Path) -> None:
        self._set = path.with_suffix(".set")
        self._sprung = path.with_suffix(".sprung")
        self._note = path.with_suffix(".note")

    def set(self) -> None:
        self._set.touch()

    def step_in(self, process_id: int) -> bool:
        """For a member: whether it is caught."""
        with suppress(FileNotFoundError):
            self._set.rename(self._sprung)
            self._note.write_text(f"{process_id}\n")
            return True
        return False

    @property
    def is_set(self) -> bool:
        """Set, or sprung with the victim still in it."""
        return self._set.exists() or self._sprung.exists()

    def take_victim(self) -> int | None:
        """For who has set it: the process id of the member that was caught, once."""
        with suppress(FileNotFoundError):
            note = self._note.read_text()
            if note.endswith("\n"):
                self._note.unlink()
                self._sprung.unlink()
                return int(note)
        return None
