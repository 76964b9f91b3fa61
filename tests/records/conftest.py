"""Every test that takes `kernel` runs on both kernels, and so does everything above the kernel in that test."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from oncelog.records import kernel as chosen

NAMES = (
    "BatchBuilder",
    "ConsumerRecord",
    "RecordCursor",
    "RowSource",
    "check_records",
    "crc32c",
    "crc_matches",
    "decode",
    "decode_part",
    "find_batch",
    "find_newest",
    "find_timestamp",
    "murmur2",
    "parse_header",
    "partition_of",
    "renumber",
    "scan",
    "stamp",
    "stamp_append_time",
    "stamp_create_time",
)


@pytest.fixture(params=chosen.KERNELS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """One of the two kernels, which `oncelog.records.kernel` hands out meanwhile."""
    try:
        module = chosen.load(request.param)
    except ImportError:
        pytest.skip("the native kernel was not built")
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(chosen, name, getattr(module, name))
        yield module
