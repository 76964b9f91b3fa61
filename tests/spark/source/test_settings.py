from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from oncelog.spark.options import BadOption, Options
from oncelog.spark.source.bounds import EARLIEST, LATEST
from oncelog.spark.source.limits import Patience
from oncelog.spark.source.ranges import Splitting
from oncelog.spark.source.settings import KNOWN, WITHOUT_MEANING, SourceSettings, batch_settings, stream_settings
from oncelog.types import IsolationLevel

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


def stream(**raw: str) -> SourceSettings:
    return stream_settings(Options({**LEAST, **raw}, "the source"))


def batch(**raw: str) -> SourceSettings:
    return batch_settings(Options({**LEAST, **raw}, "the source"))


def test_defaults_are_sparks_but_for_isolation() -> None:
    settings = stream()
    assert settings.start.everywhere == LATEST
    assert batch().start.everywhere == EARLIEST
    assert batch().end.everywhere == LATEST
    assert settings.fail_on_data_loss
    assert not settings.include_headers
    assert settings.splitting == Splitting()
    assert settings.isolation_level is IsolationLevel.READ_COMMITTED
    assert stream(**{"kafka.isolation.level": "read_uncommitted"}).isolation_level is IsolationLevel.READ_UNCOMMITTED


def test_limits_are_read() -> None:
    settings = stream(
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="2m",
        minPartitions="7",
        includeHeaders="true",
    )
    assert settings.max_offsets == 10
    assert settings.patience == Patience(5, 120_000)
    assert settings.splitting.min_ranges == 7
    assert settings.include_headers


def test_settings_travel() -> None:
    settings = stream(startingOffsets='{"t": {"0": 3}}')
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize("name", WITHOUT_MEANING)
def test_what_means_nothing_here_is_accepted(name: str) -> None:
    assert stream(**{name: "1"}) == stream()


def test_nobody_joins_a_group() -> None:
    assert stream(**{"kafka.group.id": "g"}) == stream()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"endingOffsets": "latest"}, "no end"),
        ({"endingTimestamp": "5"}, "no end"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "larger than"),
        ({"maxTriggerDelay": "5m"}, "give both"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "15m"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"subscribePattern": "t"}, "exactly one"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "checkpoint"),
        ({"kafka.fetch.min.byte": "1"}, "fetch.min.bytes"),
        ({"kafka.isolation.level": "none"}, "read_committed"),
        ({"kafka.ssl.truststore.location": "x"}, "TLS"),
    ],
)
def test_contradictions_and_mistakes_are_refused(raw: dict[str, str], expected: str) -> None:
    with pytest.raises(BadOption, match=expected):
        stream(**raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"maxOffsetsPerTrigger": "5"}, "all at once"),
    ],
)
def test_a_batch_has_its_own_contradictions(raw: dict[str, str], expected: str) -> None:
    with pytest.raises(BadOption, match=expected):
        batch(**raw)


def test_brokers_must_be_named() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers"):
        stream_settings(Options({"subscribe": "t"}, "the source"))


@pytest.mark.parametrize("name", KNOWN)
def test_every_option_is_documented(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "spark-source.md"
    assert f"`{name}`" in page.read_text()
