"""Leases on Redis: who works on which message, until when, and tokens that only grow.

A lease that is lost with Redis itself costs a repeated attempt, never a repeated effect: the database checks the
token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis import exceptions

from oncelog.once.errors import LeaseHeld
from oncelog.once.identity import Key

# Everything or nothing: one lease that another worker holds refuses the whole batch. KEYS: the counter, then the
# leases.
ACQUIRE = """
for i = 2, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= ARGV[1] then return {0, redis.call('PTTL', KEYS[i])} end
end
for i = 2, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end
return {redis.call('INCR', KEYS[1]), 0}
"""
RELEASE = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) end
end
"""
CATCH_UP = """
local given = tonumber(redis.call('GET', KEYS[1]) or '0')
if given < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
"""


class RedisLeases:
    """`client` is a `redis.Redis`. Keys begin with `prefix`, and those of one scope share a slot of a Redis cluster."""

    outages = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError)

    def __init__(self, client: Any, *, prefix: str = "oncelog") -> None:
        self._prefix = prefix
        self._acquire = client.register_script(ACQUIRE)
        self._release = client.register_script(RELEASE)
        self._catch_up = client.register_script(CATCH_UP)

    def acquire(self, scope: str, owner: str, keys: Iterable[Key], lease_ms: int) -> int:
        """A token for all of them, higher than every one before. Raises LeaseHeld if another holds one of them."""
        names = [self._counter(scope), *self._names(scope, keys)]
        token, left_ms = self._acquire(keys=names, args=[owner, lease_ms])
        if not token:
            raise LeaseHeld(f"another worker holds a lease, for up to {left_ms} ms; ask again a little later")
        return int(token)

    def release(self, scope: str, owner: str, keys: Iterable[Key]) -> None:
        self._release(keys=self._names(scope, keys), args=[owner])

    def catch_up(self, scope: str, token: int) -> None:
        """Give out only tokens higher than this one."""
        self._catch_up(keys=[self._counter(scope)], args=[token])

    def _counter(self, scope: str) -> str:
        return f"{self._prefix}:{{{scope}}}:token"

    def _names(self, scope: str, keys: Iterable[Key]) -> list[str]:
        return [f"{self._prefix}:{{{scope}}}:lease:{source}:{message_id}" for source, message_id in sorted(keys)]
