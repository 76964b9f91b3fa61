"""FindCoordinator (key 10), versions 0-6.

Versions: 0 knows groups only; 1 adds the key type and error messages; 3 is flexible; 4 asks for many keys at once; 6
adds share groups.
- For a group or a transactional id it is this broker. The first one that is asked for creates `__consumer_offsets` or
  `__transaction_state`, and is answered at once, where Kafka answers COORDINATOR_NOT_AVAILABLE until the topic exists.
- For anything else, INVALID_REQUEST, as Kafka without share groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request, promised
from oncelog.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.groups.coordination import Coordination
    from oncelog.broker.state import BrokerState
    from oncelog.broker.transactions.coordination import TransactionCoordination

logger = logging.getLogger(__name__)

API_KEY = ApiKey.FIND_COORDINATOR
FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP, TRANSACTION = 0, 1
MODULES = {GROUP: "oncelog.broker.groups.coordination", TRANSACTION: "oncelog.broker.transactions.coordination"}
NOWHERE: Message = {"node_id": -1, "host": "", "port": -1}
NO_ERROR_MESSAGE = "NONE"
"""What Kafka's older versions say where there is no error."""


def handle(broker: BrokerState, request: Request) -> Answer:
    def begin(deliver: Callable[[Callable[[], Answer]], None]) -> None:
        module = MODULES.get(request.body["key_type"])
        broker.when_loaded(module, request.now_ms, lambda: deliver(lambda: _with_topic(broker, request)))

    return promised(request, begin)


def _with_topic(broker: BrokerState, request: Request) -> Answer:
    coordination = _coordination(broker, request.body["key_type"])
    if coordination is None:
        return _answer(broker, request, None)

    def begin(deliver: Callable[[Callable[[], Answer]], None]) -> None:
        coordination.when_topic_exists(request.now_ms, lambda error: deliver(lambda: _answer(broker, request, error)))

    return promised(request, begin)


def _coordination(broker: BrokerState, key_type: int) -> Coordination | TransactionCoordination | None:
    if key_type == GROUP:
        return broker.coordination
    return broker.transactions if key_type == TRANSACTION else None


def _answer(broker: BrokerState, request: Request, topic_error: KafkaError | None) -> Message:
    if topic_error is not None:
        logger.error("the topic of a coordinator cannot be created: %s", topic_error)
    key_type = request.body["key_type"]
    if request.version < FIRST_VERSION_WITH_MANY_KEYS:
        answer = _find(broker, key_type, request.body["key"], topic_error)
        if not answer["error_code"]:
            answer["error_message"] = NO_ERROR_MESSAGE
        return answer
    keys = request.body["coordinator_keys"]
    return {"coordinators": [{"key": key, **_find(broker, key_type, key, topic_error)} for key in keys]}


def _find(broker: BrokerState, key_type: int, key: str, topic_error: KafkaError | None) -> Message:
    try:
        _check(broker, key_type, key, topic_error)
    except KafkaError as error:
        return {**NOWHERE, "error_code": error.code, "error_message": error.message}
    host, port = broker.endpoint
    return {"node_id": broker.node_id, "host": host, "port": port, "error_code": 0, "error_message": ""}


def _check(broker: BrokerState, key_type: int, key: str, topic_error: KafkaError | None) -> None:
    """Raises what the client is told, unless this broker coordinates the key."""
    coordination = _coordination(broker, key_type)
    if coordination is None:
        raise InvalidRequest(f"no coordinator has keys of type {key_type}")
    if topic_error is not None:
        raise CoordinatorNotAvailable(f"the coordinator's topic cannot be created: {topic_error.message}")
    coordination.check_available(key)
