"""Why the sink stops. Each of them is raised before anything is skipped, lost or written twice."""

from __future__ import annotations

from oncelog.errors import OncelogError


class SinkError(OncelogError):
    """The batch was not completed."""


class UnreadableJournal(SinkError):
    """A record of the journal that this version cannot understand, or that contradicts the one before it."""


class JournalFenced(SinkError):
    """Another driver has taken the journal over: this one may decide nothing any more."""


class PrefixInUse(SinkError):
    """Another driver took the journal over between this batch's plan and its commit."""


class TooLate(SinkError):
    """An attempt of a task took its slot after the commit of its batch had begun: it wrote nothing."""


class RolledBack(SinkError):
    """Spark replays a batch that cannot be the one which was written under that number."""


class Disagreement(SinkError):
    """What the tasks report does not fit together: nothing was decided."""


class NearExpiry(SinkError):
    """The transactions are about to be aborted by their timeout: nothing was decided, the batch can be replayed."""


class NotWhole(SinkError):
    """The one transaction of an atomic batch holds other records than its tasks report: nothing was decided."""


class NotFinished(SinkError):
    """A decided batch could not be completed now. It stays decided: the next plan goes on with it."""


class RecordsGone(SinkError):
    """A decided transaction was aborted, and its records are not in the log any more: somebody must look at it."""


class RowWithoutTopic(SinkError):
    """A row does not say which topic it is for."""


class NotPlanned(SinkError):
    """A task was started with a writer that no plan was made for."""


class ForeignCheckpoint(SinkError):
    """The query's checkpoint belongs to a sink of another name."""
