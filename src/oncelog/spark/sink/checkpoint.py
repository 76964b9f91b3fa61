"""What the query's checkpoint tells, where it can be read: the source offsets of a batch, and whose checkpoint it is.

The folder is Spark's: `offsets/N` holds a version line, a line about the batch, and a line for each source. Beside it
the sink keeps one small file of its own, so that a checkpoint is not continued under another name.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Final

from pyarrow import fs  # type: ignore[import-untyped]

from oncelog.spark.sink.errors import ForeignCheckpoint
from oncelog.types import TopicPartition

OWNER_FILE: Final = "_oncelog_sink.json"
HEADER_LINES: Final = 2
MAX_FILE_BYTES: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    location: str

    def source_offsets(self, batch_id: int) -> tuple[str, ...] | None:
        """One text for each source; None if that cannot be known."""
        text = self._read(f"offsets/{batch_id}")
        return None if text is None else tuple(text.splitlines()[HEADER_LINES:])

    def claim(self, prefix: str) -> None:
        """From now on it belongs to this sink. Raises ForeignCheckpoint if it belongs to another."""
        text = self._read(OWNER_FILE)
        if text is None:
            self._write(OWNER_FILE, json.dumps({"transactional.id.prefix": prefix}))
            return
        owner = json.loads(text)["transactional.id.prefix"]
        if owner != prefix:
            raise ForeignCheckpoint(
                f"the checkpoint {self.location!r} belongs to the transactional.id.prefix {owner!r}, and the query has "
                f"{prefix!r}: what that one decided would be lost or doubled. Use {owner!r}, or an empty checkpoint"
            )

    def _read(self, name: str) -> str | None:
        try:
            files, path = _filesystem(self.location)
            with files.open_input_stream(f"{path}/{name}") as stream:
                text: str = stream.read(MAX_FILE_BYTES).decode()
                return text
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("the checkpoint %s cannot be read, so it is not checked: %s", self.location, error)
            return None

    def _write(self, name: str, text: str) -> None:
        try:
            files, path = _filesystem(self.location)
            with files.open_output_stream(f"{path}/{name}") as stream:
                stream.write(text.encode())
        except (OSError, ValueError) as error:
            logger.warning("the checkpoint %s cannot be marked as this sink's: %s", self.location, error)


def _filesystem(location: str) -> tuple[fs.FileSystem, str]:
    if "://" in location or location.startswith("file:"):
        files, path = fs.FileSystem.from_uri(location)
        return files, path
    return fs.LocalFileSystem(), location


def topic_offsets(source_offsets: str) -> dict[TopicPartition, int]:
    """Those of a source that reads topics, `{"orders": {"0": 17}}`; of any other source nothing."""
    try:
        found = json.loads(source_offsets)
        return {
            TopicPartition(topic, int(index)): int(offset)
            for topic, offsets in found.items()
            for index, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
