"""What a transaction's coordinator may answer before it does anything, said by a proxy in its place."""

from __future__ import annotations

from oncelog.faults import FaultProxy, Rule
from tests.support.sizes import IS_SOAK

COORDINATION = ("InitProducerId", "EndTxn")
"""What every transaction asks its coordinator, in both protocols."""

MOVED, BUSY = "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"
ERRORS = (MOVED, BUSY, *(("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS") if IS_SOAK else ()))

SURELY = 2
SEED = 7


def refusing(bootstrap: str, error: str, *apis: str) -> FaultProxy:
    """The first requests of each API surely, and of the others, those that are asked again among them, some."""
    rules = [
        rule
        for api in apis
        for rule in (
            Rule.refuse_request(api, error=error, limit=SURELY),
            Rule.refuse_request(api, error=error, probability=0.4),
        )
    ]
    return FaultProxy(bootstrap, rules, seed=SEED)


def check_refused(proxy: FaultProxy, *apis: str) -> None:
    requests = proxy.report().requests
    for api in apis:
        assert requests[api].refused >= SURELY, f"{api}: {requests[api]}"
