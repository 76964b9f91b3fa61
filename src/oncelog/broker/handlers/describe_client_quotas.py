"""DescribeClientQuotas (key 48), versions 0-1, which differ only in form (1 is flexible). Thousands of quotas are told
while others are served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.broker.handlers.alter_client_quotas import encode_entity
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.client_quotas import FilterPart, find_client_quotas
from oncelog.controller.state import QuotaEntity
from oncelog.errors import KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS


def handle(broker: BrokerState, request: Request) -> Answer:
    parts = [FilterPart(one["entity_type"], one["match_type"], one["match"]) for one in request.body["components"]]
    try:
        found = find_client_quotas(broker.controller.state, parts, strict=request.body["strict"])
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "entries": None}
    rest = {"error_message": ""}  # as Kafka says it
    return Piecewise(rest, "entries", (_entry(entity, limits) for entity, limits in found.items()))


def _entry(entity: QuotaEntity, limits: Mapping[str, float]) -> Message:
    return {
        "entity": encode_entity(entity),
        "values": [{"key": key, "value": value} for key, value in sorted(limits.items())],
    }
