"""FindCoordinator (key 10), versions 0-6.

Versions: 0 knows groups only; 1 adds the key type and error messages; 3 is flexible; 4 asks for many keys at once; 6
adds share groups. There is no coordinator yet, and the answer says so:
- for a group, COORDINATOR_NOT_AVAILABLE. Clients retry it within their own timeouts, and a consumer that assigns its
  partitions itself, and only has a group's name because its library demands one, works undisturbed;
- for a transactional id, UNSUPPORTED_VERSION: such a producer can do nothing, and should hear it at once;
- for anything else, INVALID_REQUEST, as Kafka without share groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError, UnsupportedVersion
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.FIND_COORDINATOR
FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP, TRANSACTION = 0, 1
NOWHERE: Message = {"node_id": -1, "host": "", "port": -1}


def handle(broker: BrokerState, request: Request) -> Message:
    error = _error(request.body["key_type"])
    answer = {**NOWHERE, "error_code": error.code, "error_message": error.message}
    if request.version < FIRST_VERSION_WITH_MANY_KEYS:
        return answer
    return {"coordinators": [{**answer, "key": key} for key in request.body["coordinator_keys"]]}


def _error(key_type: int) -> KafkaError:
    if key_type == GROUP:
        return CoordinatorNotAvailable("consumer groups are not served by this version of oncelog; assign partitions")
    if key_type == TRANSACTION:
        return UnsupportedVersion("transactions are not served by this version of oncelog")
    return InvalidRequest(f"no coordinator has keys of type {key_type}")
