"""Whose limit a client falls under: Kafka's precedence of user and client id.

Owns the order of entities and who shares one rate: all clients of a user whose quota is the user's, all users of a
client id whose quota is the client id's. A default limits each of those it stands for, not all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oncelog.controller.client_quotas import CLIENT_ID, USER
from oncelog.controller.state import ClientQuota, QuotaEntity
from oncelog.named_tuple import NamedTuple

DEFAULT = None


class Sharers(NamedTuple):
    """Those who are counted together; None stands for all users, or all client ids."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    per_second: float
    sharers: Sharers


class Limits:
    """The limits of one key, such as `producer_byte_rate`."""

    def __init__(self, key: str, quotas: Mapping[ClientQuota, float]) -> None:
        self._limits = {quota.entity: value for quota, value in quotas.items() if quota.key == key}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> Limit | None:
        for entity, sharers in _candidates(user, client_id):
            per_second = self._limits.get(entity)
            if per_second is not None:
                return Limit(per_second, sharers)
        return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Sharers]]:
    """Every entity that could limit this client, the most particular first, with those who would share the rate."""
    for named_user in (user, DEFAULT):
        for named_client in (client_id, DEFAULT):
            yield ((CLIENT_ID, named_client), (USER, named_user)), Sharers(user, client_id)
        yield ((USER, named_user),), Sharers(user, None)
    for named_client in (client_id, DEFAULT):
        yield ((CLIENT_ID, named_client),), Sharers(None, client_id)
