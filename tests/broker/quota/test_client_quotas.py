"""What clients are told for what they use: throttled, withheld, forgotten; with a clock that the test turns."""

from __future__ import annotations

import pytest

from oncelog.broker.quota import client_quotas
from oncelog.broker.quota.client_quotas import MAX_FETCH_BYTES, Client, ClientQuotas, FetchVerdict
from oncelog.broker.quota.window import Window
from oncelog.controller.state import ClientQuota

T0 = 1_000_000
WINDOW = Window(11, 1000)
WEB, APP = Client("ANONYMOUS", "web"), Client("ANONYMOUS", "app")
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
OF_EACH_CLIENT = (("client-id", None),)
OF_USER = (("user", "ANONYMOUS"),)


class Told(list[tuple[str, int]]):
    def __call__(self, quota: str, throttle_ms: int) -> None:
        self.append((quota, throttle_ms))


def quotas(told: Told | None = None, **limits: float) -> ClientQuotas:
    """Of each client id."""
    stored = {ClientQuota(OF_EACH_CLIENT, key): value for key, value in limits.items()}
    return ClientQuotas(WINDOW, stored, told if told is not None else Told())


def test_active_while_a_limit_is_set_that_is_enforced() -> None:
    some = quotas()
    assert not some.active
    some.replace({ClientQuota(OF_USER, "controller_mutation_rate"): 1.0})
    assert not some.active
    some.replace({ClientQuota(OF_USER, REQUEST): 1.0})
    assert some.active
    some.replace({})
    assert not some.active


def test_without_a_limit_nothing_is_measured() -> None:
    some = quotas(request_percentage=50)
    assert some.produced(WEB, 10**9, T0) == 0
    assert some.fetched(WEB, 10**9, T0) == FetchVerdict(0, False)
    assert some.max_fetch_bytes(WEB) == MAX_FETCH_BYTES
    assert some.tracked_rates == 0


def test_producing() -> None:
    told = Told()
    some = quotas(told, producer_byte_rate=1000)
    assert some.produced(WEB, 10_000, T0) == 0
    assert some.produced(WEB, 3000, T0) == 3000
    assert some.produced(APP, 10_000, T0) == 0, "a default is a limit for each"
    assert told == [(PRODUCE, 3000)]


def test_clients_of_a_user_share_the_users_limit() -> None:
    some = ClientQuotas(WINDOW, {ClientQuota(OF_USER, PRODUCE): 1000}, Told())
    assert some.produced(WEB, 10_000, T0) == 0
    assert some.produced(APP, 1000, T0) == 1000
    assert some.tracked_rates == 1


def test_a_fetch_above_the_limit_is_withheld_and_costs_nothing() -> None:
    some = quotas(consumer_byte_rate=1000)
    assert some.fetched(WEB, 10_000, T0) == FetchVerdict(0, False)
    for _ in range(3):
        assert some.fetched(WEB, 2000, T0) == FetchVerdict(2000, True)
    assert some.fetched(WEB, 0, T0) == FetchVerdict(0, False)
    assert some.fetched(WEB, 1000, T0 + 11_000) == FetchVerdict(0, False)


def test_a_batch_above_the_limit_is_sent_once_nothing_else_was() -> None:
    some = quotas(consumer_byte_rate=1000)
    assert some.fetched(WEB, 50_000, T0) == FetchVerdict(11_000, False)
    assert some.fetched(WEB, 50_000, T0 + 10_999) == FetchVerdict(11_000, True)
    assert some.fetched(WEB, 50_000, T0 + 11_000) == FetchVerdict(11_000, False)


def test_a_fetch_asks_for_no_more_than_may_be_sent_at_once() -> None:
    assert quotas(consumer_byte_rate=1000).max_fetch_bytes(WEB) == 10_000
    assert quotas(consumer_byte_rate=2.0**63).max_fetch_bytes(WEB) == MAX_FETCH_BYTES


def test_time_is_a_share_of_one_thread() -> None:
    some = quotas(request_percentage=50)
    assert some.worked(WEB, 5000, T0) == 0  # 50 % of ten seconds
    assert some.worked(WEB, 100, T0) == 200
    assert some.worked(WEB, 5000, T0) == WINDOW.sample_ms, "one sample at most"


def test_a_new_limit_holds_for_what_was_used_before() -> None:
    some = quotas(producer_byte_rate=1000)
    assert some.produced(WEB, 10_000, T0) == 0
    some.replace({ClientQuota(OF_EACH_CLIENT, PRODUCE): 500.0})
    assert some.produced(WEB, 0, T0) == 10_000
    some.replace({})
    assert some.tracked_rates == 0


def test_rates_are_forgotten_after_a_window() -> None:
    some = quotas(producer_byte_rate=1000)
    for number in range(50):
        some.produced(Client("ANONYMOUS", str(number)), 1, T0 + number)
    some.produced(WEB, 1, T0 + 11_024)
    assert some.tracked_rates == 50 - 25 + 1


def test_rates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client that was silent for the longest time begins anew."""
    monkeypatch.setattr(client_quotas, "MAX_TRACKED_RATES", 3)
    some = quotas(producer_byte_rate=1000)
    for client_id in ("a", "b", "c", "a", "d"):
        some.produced(Client("ANONYMOUS", client_id), 10_000, T0)
        assert some.tracked_rates <= 3
    assert some.produced(Client("ANONYMOUS", "a"), 0, T0) > 0
    assert some.produced(Client("ANONYMOUS", "b"), 0, T0) == 0
