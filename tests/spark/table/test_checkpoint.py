"""What is read from a checkpoint of Spark, and what is not there to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.spark.table.checkpoint import digest_at, query_at


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a check point"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"1-2-3"}')
    for batch, offset in enumerate((5, 5, 6)):
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{batch}}}\n{{"t":{{"0":{offset}}}}}')
    return folder


def test_a_digest_is_that_of_the_source_offsets(checkpoint: Path) -> None:
    same, again, other = (digest_at(str(checkpoint), batch) for batch in range(3))
    assert same is not None
    assert same == again != other
    assert digest_at(checkpoint.as_uri(), 0) == same
    assert query_at(str(checkpoint)) == "1-2-3"


def test_what_cannot_be_read_is_not_guessed(checkpoint: Path) -> None:
    assert digest_at(str(checkpoint), 9) is None
    assert digest_at(None, 0) is None
    assert digest_at("hdfs://host/checkpoint", 0) is None
    (checkpoint / "offsets" / "0").write_text("v9\n{}\n{}")
    assert digest_at(str(checkpoint), 0) is None
    (checkpoint / "metadata").write_text("{")
    assert query_at(str(checkpoint)) is None
