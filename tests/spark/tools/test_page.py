"""The page about the tools: its examples run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.spark import tools
from oncelog.spark.tools.ordering import PROVIDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "spark-tools.md").read_text()


def test_the_examples_run(spark: SparkSession) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 5
    names: dict[str, object] = {"spark": spark}
    try:
        for number, source in enumerate(examples, 1):
            exec(compile(source, f"spark-tools.md, example {number}", "exec"), names)
    finally:
        spark.conf.unset(PROVIDER)  # one of them sets it


def test_every_tool_is_on_the_page() -> None:
    for name in tools.__all__:
        assert name == "BadArgument" or f"`{name}" in PAGE
