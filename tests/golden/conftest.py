"""Golden tests run on both kernels too."""

from tests.records.conftest import kernel

__all__ = ["kernel"]
