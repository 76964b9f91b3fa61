"""The volume under the log directory, as DescribeLogDirs shows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.broker.handlers.conftest import Asking, open_broker

KAFKA_STORAGE_ERROR = 56


@pytest.mark.parametrize("version", [4, 5])
def test_the_size_of_the_volume_and_what_is_left_of_it(ask: Asking, version: int) -> None:
    (directory,) = ask("describe_log_dirs", version, topics=None)["results"]
    assert directory["total_bytes"] == shutil.disk_usage(ask.broker.config.log_dir).total
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]


def test_a_volume_that_cannot_be_asked(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    shutil.rmtree(broker.config.log_dir)
    (directory,) = Asking(broker)("describe_log_dirs", 4, topics=None)["results"]
    assert directory["error_code"] == KAFKA_STORAGE_ERROR
    assert (directory["total_bytes"], directory["usable_bytes"]) == (-1, -1)
