"""Which names a topic may have, in Kafka's words, and which topics are the cluster's own."""

from __future__ import annotations

import re

from oncelog.errors import InvalidTopicException

MAX_NAME_LENGTH = 249
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def is_topic_name(name: str) -> bool:
    return _fault(name) is None


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicException."""
    fault = _fault(name)
    if fault is not None:
        raise InvalidTopicException(f"Topic name is invalid: {fault}")


def _fault(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
