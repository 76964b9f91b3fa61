"""What a checkpoint tells about a batch, if this process can read it: the query's id, and the batch's source offsets.

Only folders of this machine are read. Where the checkpoint is elsewhere there is no digest, and a rolled-back one is
known by its batch numbers alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from oncelog.spark.sink.journal import digest_of

VERSION: Final = "v1"
HEADER_LINES: Final = 2
"""Of a file of offsets: the version, and what was set when the batch began. One line for each source follows."""


def query_at(checkpoint: str | None) -> str | None:
    text = _read(checkpoint, "metadata")
    try:
        return None if text is None else str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def digest_at(checkpoint: str | None, batch_id: int) -> str | None:
    text = _read(checkpoint, f"offsets/{batch_id}")
    lines = [] if text is None else text.splitlines()
    if len(lines) <= HEADER_LINES or lines[0] != VERSION:
        return None
    return digest_of(lines[HEADER_LINES:])


def _read(checkpoint: str | None, name: str) -> str | None:
    if checkpoint is None:
        return None
    place = urlparse(checkpoint)
    if place.scheme not in ("", "file"):
        return None
    folder = unquote(place.path) if place.scheme else checkpoint
    try:
        return (Path(folder) / name).read_text()
    except (OSError, UnicodeDecodeError):
        return None
