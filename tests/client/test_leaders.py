"""What is said of something that does not exist: its name, not the words of Kafka's table of errors."""

from __future__ import annotations

import pytest

from oncelog.client.leaders import raise_error
from oncelog.errors import KafkaError, UnknownTopicOrPartition, error_for_code

pytestmark = pytest.mark.deterministic


@pytest.mark.parametrize(
    ("code", "said", "kind", "text"),
    [
        (3, "This server does not host this topic-partition.", "topic", "topic 'salez' does not exist"),
        (3, None, "partition", "partition 'salez' does not exist"),
        (100, "This server does not host this topic ID.", "topic", "topic 'salez' does not exist"),
        (69, "The group id does not exist.", "group", "group 'salez' does not exist"),
        (105, None, "transactional id", "transactional id 'salez' does not exist"),
        (3, "no partition 7 in salez", "topic", "no partition 7 in salez"),
    ],
)
def test_what_does_not_exist_is_named(code: int, said: str | None, kind: str, text: str) -> None:
    with pytest.raises(KafkaError) as caught:
        raise_error({"error_code": code, "error_message": said}, "salez", kind)
    assert type(caught.value) is type(error_for_code(code))
    assert caught.value.message == text


def test_what_went_well_is_no_error() -> None:
    raise_error({"error_code": 0}, "salez", "topic")
    assert UnknownTopicOrPartition.code == 3
