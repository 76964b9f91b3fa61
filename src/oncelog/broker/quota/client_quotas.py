"""Client quotas in force: what each client used lately, and how long it must pause.

Owns the three limits that are enforced (`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`), the rates
behind them and how many of those are remembered. Never reads a clock, never touches a connection: who asks says what
was used and when, and mutes the client for the answer. `active` is False while no quota is set; then nobody need ask.

As Kafka, except that throttling never becomes starving: no pause is longer than a window (Kafka's has no bound for
bytes, so requests behind it time out), and a fetch of a client that had nothing for a whole window is answered even if
its first batch alone is above the quota (Kafka answers it empty for ever).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum

from oncelog.broker.quota.limits import Limits, Sharers
from oncelog.broker.quota.window import Window, WindowedRate
from oncelog.controller.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from oncelog.controller.state import ClientQuota
from oncelog.named_tuple import NamedTuple

MAX_TRACKED_RATES = 10_000
"""Per kind of quota. Beyond it the client that was silent for the longest time begins anew."""

MAX_FETCH_BYTES = 2**31 - 1
"""What a fetch without a limit may ask for."""


class QuotaKind(Enum):
    PRODUCE = PRODUCER_BYTE_RATE
    FETCH = CONSUMER_BYTE_RATE
    REQUEST = REQUEST_PERCENTAGE


class Client(NamedTuple):
    user: str
    client_id: str


class FetchVerdict(NamedTuple):
    throttle_ms: int
    is_withheld: bool
    """The records must not be sent: the answer is empty, and they will be asked for again after the pause."""


NOT_LIMITED = FetchVerdict(0, False)


class ClientQuotas:
    def __init__(
        self, window: Window, quotas: Mapping[ClientQuota, float], throttled: Callable[[str, int], None]
    ) -> None:
        """`throttled` is told of every pause, with the key of its quota."""
        self._window = window
        self._kinds = {kind: _RatesOfKind(kind, window) for kind in QuotaKind}
        self._throttled = throttled
        self.active = False
        self.replace(quotas)

    def replace(self, quotas: Mapping[ClientQuota, float]) -> None:
        """The quotas have changed. What clients used lately stays, as far as the same ones are counted together."""
        for kind, rates in self._kinds.items():
            rates.limits = Limits(kind.value, quotas)
            if not rates.limits:
                rates.clear()
        self.active = any(rates.limits for rates in self._kinds.values())

    @property
    def tracked_rates(self) -> int:
        return sum(map(len, self._kinds.values()))

    def produced(self, client: Client, size_bytes: int, now_ms: int) -> int:
        """A request of this size has come; how long the client must pause."""
        return self._count(QuotaKind.PRODUCE, self._kinds[QuotaKind.PRODUCE].use(client, size_bytes, now_ms))

    def fetched(self, client: Client, size_bytes: int, now_ms: int) -> FetchVerdict:
        """Records of this size are ready to be sent."""
        rates = self._kinds[QuotaKind.FETCH]
        limit = rates.limits.find(*client)
        if limit is None:
            return NOT_LIMITED
        rate = rates.rate_of(limit.sharers, now_ms)
        throttle_ms = self._count(QuotaKind.FETCH, rate.throttle_ms(limit.per_second, now_ms, more=size_bytes))
        if throttle_ms and not rate.is_empty(now_ms):
            return FetchVerdict(throttle_ms, True)
        rate.record(size_bytes, now_ms)
        return FetchVerdict(throttle_ms, False)

    def max_fetch_bytes(self, client: Client) -> int:
        """More could never be sent at once without a pause."""
        limit = self._kinds[QuotaKind.FETCH].limits.find(*client)
        return MAX_FETCH_BYTES if limit is None else int(min(limit.per_second * self._window.full_s, MAX_FETCH_BYTES))

    def worked(self, client: Client, busy_ms: float, now_ms: int) -> int:
        """A request kept the broker's thread busy for this long; how long the client must pause: a sample at most, as
        in Kafka, since what is measured depends on the machine more than on the client."""
        percent_seconds = busy_ms / 10
        throttle_ms = self._kinds[QuotaKind.REQUEST].use(client, percent_seconds, now_ms)
        return self._count(QuotaKind.REQUEST, min(throttle_ms, self._window.sample_ms))

    def _count(self, kind: QuotaKind, throttle_ms: int) -> int:
        if throttle_ms:
            self._throttled(kind.value, throttle_ms)
        return throttle_ms


class _RatesOfKind:
    """The rates of one kind, the one that was used the longest ago first."""

    def __init__(self, kind: QuotaKind, window: Window) -> None:
        self.limits = Limits(kind.value, {})
        self._window = window
        self._rates: OrderedDict[Sharers, WindowedRate] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rates)

    def clear(self) -> None:
        self._rates.clear()

    def use(self, client: Client, amount: float, now_ms: int) -> int:
        limit = self.limits.find(*client)
        if limit is None:
            return 0
        rate = self.rate_of(limit.sharers, now_ms)
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit.per_second, now_ms)

    def rate_of(self, sharers: Sharers, now_ms: int) -> WindowedRate:
        rate = self._rates.get(sharers)
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[sharers] = WindowedRate(self._window, now_ms)
        else:
            self._rates.move_to_end(sharers)
        return rate

    def _make_room(self, now_ms: int) -> None:
        """A rate that was not used for a whole window is as good as a new one."""
        while self._rates:
            sharers, rate = next(iter(self._rates.items()))
            is_idle = now_ms - rate.last_ms >= self._window.span_ms
            if not is_idle and len(self._rates) < MAX_TRACKED_RATES:
                return
            del self._rates[sharers]
