"""What every decoder does with a value that cannot be read: fail, say nothing, or say why in a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from oncelog.spark.tools.columns import BadArgument, free_name, one_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

ON_ERROR: Final = ("fail", "null", "keep")
POSITION: Final = ("topic", "partition", "offset")


def checked_names(schema: StructType, into: str, on_error: str, error: str) -> None:
    one_of(on_error, ON_ERROR, "on_error")
    free_name(schema, into, "into")
    if on_error == "keep":
        free_name(schema, error, "error")
        if into == error:
            raise BadArgument(f"into and error are both {into!r}: they are two columns")


def delivered(
    df: DataFrame, data: Column, wrong: Column, *, into: str, on_error: str, error: str, missing: Column
) -> DataFrame:
    """`df` with the decoded column. `wrong` is null where all is well; `missing` is true where there was nothing."""
    if on_error == "fail":
        complaint = F.concat(F.lit("a value cannot be decoded: "), wrong, _place(df))
        wrong = F.when(wrong.isNotNull(), F.raise_error(complaint).cast("string"))
    columns = {into: F.when(~missing & wrong.isNull(), data)}
    return df.withColumns({**columns, error: wrong} if on_error == "keep" else columns)


def _place(df: DataFrame) -> Column:
    """Where a row came from, as far as its columns tell."""
    known = [name for name in POSITION if name in df.columns]
    if not known:
        return F.lit("")
    parts = [F.concat(F.lit(f", {name} "), F.col(quoted(name)).cast("string")) for name in known]
    return F.concat(*parts)
