"""What a request costs, with clocks that the test turns: which time is counted, when, and for how long one is muted."""

from __future__ import annotations

import types

import pytest

from oncelog.broker.quota import meter as meter_module
from oncelog.broker.quota.client_quotas import ClientQuotas, FetchVerdict
from oncelog.broker.quota.meter import Meter
from oncelog.broker.quota.window import Window
from oncelog.controller.state import ClientQuota

EVERY_CLIENT = (("client-id", None),)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def pass_ms(self, elapsed_ms: float) -> None:
        self.now_s += elapsed_ms / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    fake = types.SimpleNamespace(perf_counter=lambda: clock.now_s, monotonic_ns=lambda: round(clock.now_s * 1e9))
    monkeypatch.setattr(meter_module, "time", fake)
    return clock


class Desk:
    """Quotas of every client id, and a connection that notes how long it is muted."""

    def __init__(self, **limits: float) -> None:
        quotas = {ClientQuota(EVERY_CLIENT, key): value for key, value in limits.items()}
        self.muted: list[int] = []
        self.quotas = ClientQuotas(Window(3, 1000), quotas, lambda *_: None)

    def meter(self, size_bytes: int = 100) -> Meter:
        meter = Meter(self.quotas, size_bytes, self.muted.append)
        meter.meet("web")
        return meter


def test_within_every_limit_nobody_is_muted(clock: Clock) -> None:
    desk = Desk(producer_byte_rate=1000, consumer_byte_rate=1000, request_percentage=50)
    meter = desk.meter()
    clock.pass_ms(1)
    assert meter.produced(is_answered=True) == 0
    assert meter.fetched(100) == FetchVerdict(0, False)
    assert meter.served() == 0
    assert desk.muted == []


def test_of_bytes_and_time_the_longer_pause_counts(clock: Clock) -> None:
    desk = Desk(producer_byte_rate=1000, request_percentage=10)
    meter = desk.meter(size_bytes=2500)
    clock.pass_ms(210)  # which alone would be a pause of 100
    assert meter.produced(is_answered=True) == 500
    assert desk.muted == [500]


def test_time_is_free_where_no_answer_tells_the_pause(clock: Clock) -> None:
    desk = Desk(producer_byte_rate=1000, request_percentage=0.001)
    meter = desk.meter(size_bytes=2500)
    clock.pass_ms(100)
    assert meter.produced(is_answered=False) == 500
    meter.left_thread()
    assert desk.meter().served() == 0


def test_records_are_withheld_for_bytes_alone(clock: Clock) -> None:
    desk = Desk(consumer_byte_rate=1000, request_percentage=0.001)
    first = desk.meter()
    clock.pass_ms(1)
    assert first.fetched(2000) == FetchVerdict(1000, False)
    assert desk.meter().fetched(100).is_withheld
    assert desk.meter().max_fetch_bytes == 2000


def test_waiting_costs_nothing(clock: Clock) -> None:
    desk = Desk(request_percentage=10)
    meter = desk.meter()
    clock.pass_ms(1)
    meter.left_thread()
    clock.pass_ms(30_000)
    assert meter.fetched(0) == FetchVerdict(0, False)


def test_what_is_done_after_the_answer_counts_for_the_next(clock: Clock) -> None:
    desk = Desk(request_percentage=10)
    meter = desk.meter()
    assert meter.served() == 0
    clock.pass_ms(250)
    meter.left_thread()
    assert desk.muted == []
    assert desk.meter().served() == 250


def test_a_client_without_a_name(clock: Clock) -> None:
    desk = Desk(producer_byte_rate=1000)
    meter = Meter(desk.quotas, 2500, desk.muted.append)
    meter.meet(None)
    assert meter.produced(is_answered=True) == 500
