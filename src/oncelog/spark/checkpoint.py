"""A query's checkpoint, where this process can read it: the query's id, and the source offsets of its batches.

The folder is Spark's. `metadata` holds the query's id; `offsets/N` a version line, a line about the batch, and a line
for each source. What cannot be read is not known: whoever asks goes on without it, with one check less.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

from oncelog.spark.sink.journal import digest_of

VERSION: Final = "v1"
HEADER_LINES: Final = 2
"""Of a file of offsets: the version, and what was set when the batch began."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    location: str

    def query_id(self) -> str | None:
        text = self.read("metadata")
        try:
            return None if text is None else str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            return None

    def source_offsets(self, batch_id: int) -> tuple[str, ...] | None:
        """One text for each source."""
        text = self.read(f"offsets/{batch_id}")
        lines = [] if text is None else text.splitlines()
        if len(lines) <= HEADER_LINES or lines[0] != VERSION:
            return None
        return tuple(lines[HEADER_LINES:])

    def digest(self, batch_id: int) -> str | None:
        """Of the batch's source offsets: another one means that the checkpoint was rolled back."""
        offsets = self.source_offsets(batch_id)
        return None if offsets is None else digest_of(offsets)

    def read(self, name: str) -> str | None:
        try:
            folder = self._local()
            if folder is not None:
                return (folder / name).read_text()
            files, path = self._remote()
            with files.open_input_stream(f"{path}/{name}") as stream:
                text: str = stream.read().decode()
                return text
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s of the checkpoint %s cannot be read: %s", name, self.location, error)
            return None

    def write(self, name: str, text: str) -> None:
        try:
            folder = self._local()
            if folder is not None:
                (folder / name).write_text(text)
                return
            files, path = self._remote()
            with files.open_output_stream(f"{path}/{name}") as stream:
                stream.write(text.encode())
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be written into the checkpoint %s: %s", name, self.location, error)

    def _local(self) -> Path | None:
        place = urlparse(self.location)
        if place.scheme not in ("", "file"):
            return None
        return Path(unquote(place.path) if place.scheme else self.location)

    def _remote(self) -> tuple[Any, str]:
        from pyarrow import fs  # type: ignore[import-untyped]

        files, path = fs.FileSystem.from_uri(self.location)
        return files, path
