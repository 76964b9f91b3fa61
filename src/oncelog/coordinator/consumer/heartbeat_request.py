"""ConsumerGroupHeartbeat (68), versions 0-1: what a request must be before anybody asks what it means.

Version 1 adds SubscribedTopicRegex, and the client makes its member id itself.
"""

from __future__ import annotations

from oncelog.coordinator.classic.joining import MAX_NAME_BYTES
from oncelog.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    Partitions,
    gather,
)
from oncelog.errors import InvalidRequest, KafkaError, UnsupportedAssignor
from oncelog.wire.codec import Message

FIRST_VERSION_WITH_OWN_MEMBER_ID = 1


def check_heartbeat(body: Message, version: int, assignors: tuple[str, ...]) -> None:
    epoch = body["member_epoch"]
    if version >= FIRST_VERSION_WITH_OWN_MEMBER_ID or epoch > 0 or epoch == LEAVING_EPOCH:
        _check_not_blank(body["member_id"], "MemberId")
    _check_not_blank(body["group_id"], "GroupId")
    _check_not_blank(body["instance_id"], "InstanceId")
    _check_not_blank(body["rack_id"], "RackId")
    for name in ("group_id", "member_id", "instance_id"):
        if len((body[name] or "").encode()) > MAX_NAME_BYTES:
            raise InvalidRequest(f"{name} has more than {MAX_NAME_BYTES} bytes.")
    if epoch == JOINING_EPOCH:
        _check_join(body)
    elif epoch == STATIC_LEAVING_EPOCH and body["instance_id"] is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    assignor = body["server_assignor"]
    if assignor is not None and assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )


def _check_join(body: Message) -> None:
    if body["rebalance_timeout_ms"] == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if body["topic_partitions"] is None or body["topic_partitions"]:
        raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if body["subscribed_topic_names"] is None and body.get("subscribed_topic_regex") is None:
        raise InvalidRequest("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _check_not_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise InvalidRequest(f"{name} can't be empty.")


def owned_partitions(body: Message) -> Partitions | None:
    topics = body["topic_partitions"]
    return None if topics is None else gather((topic["topic_id"], topic["partitions"]) for topic in topics)


def is_full(body: Message) -> bool:
    """A member that says everything about itself does not know what it was told: it is told everything again."""
    names_something = body["subscribed_topic_names"] is not None or body.get("subscribed_topic_regex") is not None
    return body["rebalance_timeout_ms"] != -1 and names_something and body["topic_partitions"] is not None


def error_answer(error: KafkaError) -> Message:
    return {"error_code": error.code, "error_message": error.message}
