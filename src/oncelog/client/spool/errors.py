"""What a spool raises. Each message names the folder and what to do."""

from __future__ import annotations

from oncelog.errors import OncelogError


class SpoolError(OncelogError):
    """Base of everything that a spool raises on purpose."""


class SpoolFull(SpoolError):
    """The records that wait on disk have reached `spool_max_bytes`. Nothing was accepted."""


class SpoolWriteFailed(SpoolError):
    """The disk refused a write (full, or broken). What was to be written was not accepted."""


class SpoolReadFailed(SpoolError):
    """A record that waits on disk cannot be read back. Opening the spool again tells what is damaged."""


class SpoolInUse(SpoolError):
    """Another producer has the folder open."""


class SpoolFateUnknown(SpoolError):
    """Records of an earlier run may or may not be stored, and nobody can tell any more."""
