"""What is read from a checkpoint of Spark, and what is not there to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.spark.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a check point"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"1-2-3"}')
    for batch, offset in enumerate((5, 5, 6)):
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{batch}}}\n{{"t":{{"0":{offset}}}}}')
    return folder


def test_a_digest_is_that_of_the_source_offsets(checkpoint: Path) -> None:
    same, again, other = (Checkpoint(str(checkpoint)).digest(batch) for batch in range(3))
    assert same is not None
    assert same == again != other
    assert Checkpoint(checkpoint.as_uri()).digest(0) == same
    assert Checkpoint(str(checkpoint)).query_id() == "1-2-3"


def test_what_cannot_be_read_is_not_guessed(checkpoint: Path) -> None:
    assert Checkpoint(str(checkpoint)).digest(9) is None
    assert Checkpoint("nowhere://host/checkpoint").digest(0) is None
    (checkpoint / "offsets" / "0").write_text("v9\n{}\n{}")
    assert Checkpoint(str(checkpoint)).digest(0) is None
    (checkpoint / "metadata").write_text("{")
    assert Checkpoint(str(checkpoint)).query_id() is None
