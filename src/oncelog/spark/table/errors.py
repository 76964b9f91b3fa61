"""Why a table sink stops. Each of them is raised before anything of the batch is visible."""

from __future__ import annotations

from oncelog.errors import OncelogError


class TableError(OncelogError):
    """The batch was not published."""


class UnreachableDatabase(TableError):
    """The database does not answer, or does not let this user in."""


class UnfitTable(TableError):
    """The table does not exist, or cannot take what the query writes."""


class BadValue(TableError):
    """A row holds what the database cannot keep as it is."""


class SinkTaken(TableError):
    """Another driver has taken the sink over since the batch was planned, or the name belongs to another table."""


class RolledBack(TableError):
    """Spark replays a batch that cannot be the one which was published under that number."""


class UnknownQuery(TableError):
    """A new query on a sink that another one has filled: it would write the same rows a second time."""


class StagingLost(TableError):
    """What the tasks have staged is not all there: nothing was published, the batch can be replayed."""


class Disagreement(TableError):
    """What the tasks report does not fit together: nothing was published."""
