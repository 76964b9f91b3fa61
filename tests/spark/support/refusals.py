"""What a transaction's coordinator may answer before it does anything, said by a proxy in its place."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.faults import FaultProxy, Rule
from tests.support.sizes import IS_SOAK

COORDINATION = ("InitProducerId", "EndTxn")
"""What every transaction asks its coordinator, in both protocols."""

MOVED, BUSY = "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"
ERRORS = (MOVED, BUSY, *(("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS") if IS_SOAK else ()))

LIKELY = 0.4
SEED = 7


def refusing(bootstrap: str, errors: Sequence[str], *apis: str) -> FaultProxy:
    """The first request of each API surely, with each error, and of the others, some."""
    rules = [Rule.refuse_request(api, error=error, limit=1) for api in apis for error in errors]
    rules += [
        Rule.refuse_request(api, error=error, probability=LIKELY / len(errors)) for api in apis for error in errors
    ]
    return FaultProxy(bootstrap, rules, seed=SEED)


def check_refused(proxy: FaultProxy, *apis: str) -> None:
    requests = proxy.report().requests
    for api in apis:
        assert requests[api].refused > 0, f"{api}: {requests[api]}"
