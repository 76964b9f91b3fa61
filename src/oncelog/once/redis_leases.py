"""Leases on Redis: who works on which message, until when, and tokens that only grow.

A lease that is lost with Redis itself costs a repeated attempt, never a repeated effect: the database checks the
token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redis import exceptions

from oncelog.once.absence import SLOW_S, Absence, why_silent
from oncelog.once.elsewhere import Elsewhere
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
WHAT_NEXT = "it is asked again, and the records wait for it; nothing is lost"


class RedisLeases:
    """`client` is a `redis.Redis`. Keys begin with `prefix`, and those of one scope share a slot of a Redis cluster."""

    outages = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError)

    def __init__(self, client: Any, *, prefix: str = "oncelog") -> None:
        self._prefix = prefix
        self._address = _address(client)
        self._elsewhere = Elsewhere("oncelog-leases")
        where = "Redis" if self._address is None else f"Redis at {_shown(self._address)}"
        self._absence = Absence(f"{where}, which keeps the leases")
        self._acquire = client.register_script(ACQUIRE)
        self._release = client.register_script(RELEASE)
        self._catch_up = client.register_script(CATCH_UP)

    def acquire(self, scope: str, owner: str, keys: Iterable[Key], lease_ms: int) -> int:
        """A token for all of them, higher than every one before. Raises LeaseHeld if another holds one of them."""
        names = [self._counter(scope), *self._names(scope, keys)]
        token, left_ms = self._ask(lambda: self._acquire(keys=names, args=[owner, lease_ms]))
        if not token:
            raise LeaseHeld(f"another worker holds a lease, for up to {left_ms} ms; ask again a little later")
        return int(token)

    def release(self, scope: str, owner: str, keys: Iterable[Key]) -> None:
        names = self._names(scope, keys)
        self._ask(lambda: self._release(keys=names, args=[owner]))

    def catch_up(self, scope: str, token: int) -> None:
        """Give out only tokens higher than this one."""
        self._ask(lambda: self._catch_up(keys=[self._counter(scope)], args=[token]))

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            answer = self._elsewhere.do(question, SLOW_S, self._tell_slow)
        except self.outages as error:
            self._absence.begins(error, WHAT_NEXT)
            raise
        self._absence.ends()
        return answer

    def _tell_slow(self) -> None:
        """The client may be about to try for long, by its own settings, and says nothing meanwhile."""
        reason = self._elsewhere.do(lambda: why_silent(self._address), None, lambda: None)
        self._absence.begins(reason, f"waiting as long as the client's own timeouts and retries say, then {WHAT_NEXT}")

    def _counter(self, scope: str) -> str:
        return f"{self._prefix}:{{{scope}}}:token"

    def _names(self, scope: str, keys: Iterable[Key]) -> list[str]:
        return [f"{self._prefix}:{{{scope}}}:lease:{source}:{message_id}" for source, message_id in sorted(keys)]


def _address(client: Any) -> tuple[str, int] | str | None:
    """Host and port, or a path; None for clients of several servers."""
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", None) or {}
    if "path" in settings:
        return str(settings["path"])
    if "host" in settings:
        return str(settings["host"]), int(settings.get("port", 6379))
    return None


def _shown(address: tuple[str, int] | str) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"
