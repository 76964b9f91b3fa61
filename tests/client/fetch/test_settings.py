from __future__ import annotations

import pytest

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.fetch.partitions import EARLIEST, LATEST
from oncelog.client.fetch.settings import Ago, Backoff, FetchSettings


def settings(**given: object) -> FetchSettings:
    return FetchSettings.of(ConsumerConfig.of("host:9092", **given))


@pytest.mark.parametrize(
    ("policy", "reset"),
    [("earliest", EARLIEST), ("latest", LATEST), ("none", None), ("by_duration:PT2S", Ago(2_000))],
)
def test_the_policy_of_resets(policy: str, reset: int | Ago | None) -> None:
    assert settings(auto_offset_reset=policy).reset == reset


@pytest.mark.parametrize(("chance", "pauses"), [(0.0, [80, 80, 160, 320, 320]), (1.0, [120, 120, 240, 480, 480])])
def test_pauses_double_up_to_their_bound(chance: float, pauses: list[int]) -> None:
    backoff = Backoff(settings(retry_backoff_ms=100, retry_backoff_max_ms=400), lambda: chance)
    assert [backoff.after(failures) for failures in (0, 1, 2, 3, 50)] == pauses
