from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from oncelog.spark.source.schema import arrow_schema, spark_schema


@pytest.mark.parametrize("include_headers", [False, True])
def test_batches_have_the_schema_that_spark_expects(include_headers: bool) -> None:
    expected = to_arrow_schema(spark_schema(include_headers), timezone="UTC")
    assert arrow_schema(include_headers).equals(expected)
