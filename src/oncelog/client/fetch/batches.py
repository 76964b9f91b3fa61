"""Where fetched batches end, by their headers alone: the next fetch need not wait until somebody decodes them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from oncelog.records.model import HEADER_SIZE, LOG_OVERHEAD

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">i")
_LENGTH_AT = 8
_EPOCH_AT = 12
_DELTA_AT = 23


class BatchesEnd(NamedTuple):
    next_offset: int
    """After the last whole batch. May be one that no log has: a header can claim anything."""
    leader_epoch: int
    """Of that batch."""


def batches_end(data: memoryview) -> BatchesEnd | None:
    """The end of the whole batches at the front of `data`; None if not even one is whole.

    Nothing is checked but lengths: what the headers say is believed only as the place of the next fetch."""
    unpack_length = _LENGTH.unpack_from
    size = len(data)
    last, position = -1, 0
    while size - position >= HEADER_SIZE:
        end = position + LOG_OVERHEAD + unpack_length(data, position + _LENGTH_AT)[0]
        if end > size or end - position < HEADER_SIZE:
            break
        last, position = position, end
    if last < 0:
        return None
    (base_offset,) = struct.unpack_from(">q", data, last)
    (delta,) = _LENGTH.unpack_from(data, last + _DELTA_AT)
    (epoch,) = _EPOCH.unpack_from(data, last + _EPOCH_AT)
    return BatchesEnd(base_offset + delta + 1, epoch)
