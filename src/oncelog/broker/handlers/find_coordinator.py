"""FindCoordinator (key 10), versions 0-6.

Versions: 0 knows groups only; 1 adds the key type and error messages; 3 is flexible; 4 asks for many keys at once; 6
adds share groups.
- For a group or a transactional id it is this broker. The first one that is asked for creates `__consumer_offsets` or
  `__transaction_state`, and is answered at once, where Kafka answers COORDINATOR_NOT_AVAILABLE until the topic exists.
- For anything else, INVALID_REQUEST, as Kafka without share groups.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

API_KEY = ApiKey.FIND_COORDINATOR
FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP, TRANSACTION = 0, 1
NOWHERE: Message = {"node_id": -1, "host": "", "port": -1}
NO_ERROR_MESSAGE = "NONE"
"""What Kafka's older versions say where there is no error."""


def handle(broker: BrokerState, request: Request) -> Message:
    key_type = request.body["key_type"]
    if request.version < FIRST_VERSION_WITH_MANY_KEYS:
        answer = _find(broker, key_type, request.body["key"], request.now_ms)
        if not answer["error_code"]:
            answer["error_message"] = NO_ERROR_MESSAGE
        return answer
    keys = request.body["coordinator_keys"]
    return {"coordinators": [{"key": key, **_find(broker, key_type, key, request.now_ms)} for key in keys]}


def _find(broker: BrokerState, key_type: int, key: str, now_ms: int) -> Message:
    try:
        _check(broker, key_type, key, now_ms)
    except KafkaError as error:
        return {**NOWHERE, "error_code": error.code, "error_message": error.message}
    host, port = broker.endpoint
    return {"node_id": broker.node_id, "host": host, "port": port, "error_code": 0, "error_message": ""}


def _check(broker: BrokerState, key_type: int, key: str, now_ms: int) -> None:
    """Raises what the client is told, unless this broker coordinates the key."""
    if key_type not in (GROUP, TRANSACTION):
        raise InvalidRequest(f"no coordinator has keys of type {key_type}")
    coordination = broker.coordination if key_type == GROUP else broker.transactions
    try:
        coordination.ensure_topic(now_ms)
    except KafkaError as error:
        logger.error("the topic of a coordinator cannot be created: %s", error)
        raise CoordinatorNotAvailable(f"the coordinator's topic cannot be created: {error.message}") from error
    coordination.check_available(key)
