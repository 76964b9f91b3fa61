"""The table of docs/durability.md that says what damage does, made by doing it.

`python -m tests.faults.damage_table` writes it there, and names what is served in spite of damage.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.faults.damage import DAMAGES, KINDS, FileKind, Scene, build, cell

PAGE = Path(__file__).parent.parent.parent / "docs" / "durability.md"
BEGIN, END = "<!-- damage: begin -->\n", "<!-- damage: end -->"
NOT_DONE = "-"
SHARED_MEMORY = Path("/dev/shm")


def header() -> str:
    return f"| file | {' | '.join(DAMAGES)} |\n|---|{'---|' * len(DAMAGES)}\n"


def row(scene: Scene, workshop: Path, kind: FileKind) -> tuple[str, list[str]]:
    """A line of the table, and what was served in spite of damage."""
    cells, served = [], []
    for column in DAMAGES:
        stopped, wrong = cell(scene, workshop, kind, column, killed=False)
        killed, wrong_too = cell(scene, workshop, kind, column, killed=True)
        served += wrong + wrong_too
        cells.append(_text(stopped, killed))
    return f"| {kind.title} | {' | '.join(cells)} |\n", served


def _text(stopped: set[str], killed: set[str]) -> str:
    after_stop, after_kill = (" or ".join(sorted(outcomes)) for outcomes in (stopped, killed))
    if not killed or stopped == killed:
        return after_stop or NOT_DONE
    return f"{after_stop or NOT_DONE} / {after_kill}"


def printed() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def workshop_parent() -> str | None:
    """Where files cost least."""
    return str(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None


def main() -> int:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=workshop_parent()) as place:
        scene = build(Path(place))
        rows = [row(scene, Path(place) / "workshop", kind) for kind in KINDS]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    table = header() + "".join(line for line, _ in rows)
    PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2])
    served = [wrong for _, each in rows for wrong in each]
    print("\n".join(served) or "nothing is served that is damaged")
    return 1 if served else 0


if __name__ == "__main__":
    sys.exit(main())
