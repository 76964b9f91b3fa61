"""Chooses the kernel: `_native` (Cython) where it was built, else `_python`, its slower twin with the same results.

`ONCELOG_KERNEL=python` or `native` in the environment forces one of them; reading that variable is this module's
only contact with the world. Everything else uses the kernel through this module's names.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

KERNEL_VARIABLE = "ONCELOG_KERNEL"
KERNELS = ("native", "python")


def load(choice: str | None) -> ModuleType:
    """The kernel module named by `choice`; with no choice the native one if it can be imported."""
    if choice is not None and choice not in KERNELS:
        raise ImportError(f"{KERNEL_VARIABLE} is {choice!r}; it may be one of {', '.join(KERNELS)}, or unset")
    if choice != "python":
        try:
            return import_module("oncelog.records._native")
        except ImportError:
            if choice == "native":
                raise
            warnings.warn(
                "oncelog runs without its native kernel: everything works, batches are encoded and decoded many times"
                " slower. Install a C compiler and reinstall oncelog to build it.",
                RuntimeWarning,
                stacklevel=2,
            )
    return import_module("oncelog.records._python")


if TYPE_CHECKING:
    from oncelog.records import _python as _kernel
else:
    _kernel = load(os.environ.get(KERNEL_VARIABLE) or None)

NATIVE: bool = _kernel.__name__.endswith("_native")

crc32c = _kernel.crc32c
parse_header = _kernel.parse_header
crc_matches = _kernel.crc_matches
scan = _kernel.scan
find_batch = _kernel.find_batch
find_timestamp = _kernel.find_timestamp
find_newest = _kernel.find_newest
check_records = _kernel.check_records
find_refused = _kernel.find_refused
stamp = _kernel.stamp
stamp_append_time = _kernel.stamp_append_time
stamp_create_time = _kernel.stamp_create_time
renumber = _kernel.renumber
murmur2 = _kernel.murmur2
partition_of = _kernel.partition_of
decode = _kernel.decode
decode_part = _kernel.decode_part
BatchBuilder = _kernel.BatchBuilder
ConsumerRecord = _kernel.ConsumerRecord
RecordCursor = _kernel.RecordCursor
RowSource = _kernel.RowSource
