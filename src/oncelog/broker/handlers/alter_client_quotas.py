"""AlterClientQuotas (key 49), versions 0-1, which differ only in form (1 is flexible).

Sets and removes limits of users and client ids. Answers once for every entity. Left out: `controller_mutation_rate`
and the limits of an ip, which are not enforced here and therefore refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.settle import settle
from oncelog.broker.request import Answer, Request
from oncelog.controller.client_quotas import QuotaAlteration, QuotaAnswers, QuotaChange, alter_client_quotas
from oncelog.controller.state import Outcome, QuotaEntity
from oncelog.errors import KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.ALTER_CLIENT_QUOTAS


def handle(broker: BrokerState, request: Request) -> Answer:
    alterations = [_alteration(entry) for entry in request.body["entries"]]

    def plan() -> Outcome[QuotaAnswers]:
        return alter_client_quotas(broker.controller.state, alterations)

    def answer(answers: QuotaAnswers) -> Answer:
        return {"entries": [_answer(entity, error) for entity, error in answers.items()]}

    def refuse(error: KafkaError) -> QuotaAnswers:
        return dict.fromkeys((alteration.entity for alteration in alterations), error)

    return settle(broker, request, plan, answer, spoil=_spoil, refuse=refuse)


def encode_entity(entity: QuotaEntity) -> list[Message]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def _alteration(entry: Message) -> QuotaAlteration:
    parts = {part["entity_type"]: part["entity_name"] for part in entry["entity"]}  # of a type twice the last counts
    changes = [QuotaChange(op["key"], None if op["remove"] else op["value"]) for op in entry["ops"]]
    return QuotaAlteration(tuple(sorted(parts.items())), changes)


def _answer(entity: QuotaEntity, error: KafkaError | None) -> Message:
    return {
        "error_code": error.code if error else 0,
        "error_message": error.message if error else None,
        "entity": encode_entity(entity),
    }


def _spoil(answers: QuotaAnswers, error: KafkaError) -> QuotaAnswers:
    return {entity: refused or error for entity, refused in answers.items()}
