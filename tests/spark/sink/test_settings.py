"""Options and columns of the topic sink: what fits together, and what is said where it does not."""

from __future__ import annotations

import pytest

from oncelog.spark.options import BadOption, Options
from oncelog.spark.sink.settings import HEADERS_TYPE, WHAT, Mode, NewTopic, SinkSettings, sink_settings

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
ONCE = {**SERVERS, "topic": "paid", "transactional.id.prefix": "billing"}


def settings(options: dict[str, str], **types: str) -> SinkSettings:
    return sink_settings(Options(options, WHAT), types or {"value": "binary"})


def test_a_prefix_means_exactly_once() -> None:
    found = settings({**ONCE, "checkpointLocation": "/c", "group.id": "g", "kafka.linger.ms": "7"})
    assert (found.mode, found.name, found.checkpoint, found.group_id) == (Mode.EXACTLY_ONCE, "billing", "/c", "g")
    assert found.client["linger.ms"] == "7"
    assert found.client["bootstrap.servers"] == "127.0.0.1:9092"
    assert not found.is_atomic


def test_without_a_prefix_rows_are_sent_plainly() -> None:
    assert settings({**SERVERS, "topic": "t"}).mode is Mode.IDEMPOTENT
    assert settings({**SERVERS, "topic": "t", "mode": "at-least-once"}).mode is Mode.AT_LEAST_ONCE


def test_topics_that_are_created() -> None:
    assert settings(ONCE).new_topic is None
    assert settings({**ONCE, "create": "true"}).new_topic == NewTopic(None, None, {})
    given = {"create.partitions": "4", "create.replication.factor": "2", "create.config.retention.ms": "60000"}
    assert settings({**ONCE, "create": "true", **given}).new_topic == NewTopic(4, 2, {"retention.ms": "60000"})


def test_case_is_lost_and_does_not_matter() -> None:
    assert settings({**SERVERS, "TOPIC": "t", "Atomic": "Batch", "transactional.id.PREFIX": "p"}).is_atomic


def test_columns_that_records_are_made_of() -> None:
    types = {"value": "string", "key": "binary", "partition": "int", "headers": HEADERS_TYPE, "offset": "bigint"}
    assert settings(ONCE, **types).columns == ("key", "value", "partition", "headers")
    assert settings({**SERVERS}, value="string", topic="string").columns == ("value", "topic")
    assert settings({**SERVERS, "topic": "t"}, value="string", topic="string").columns == ("value",)


@pytest.mark.parametrize(
    ("options", "types", "said"),
    [
        ({}, {}, "needs the option 'kafka.bootstrap.servers'"),
        (SERVERS, {}, "needs the option 'topic', or a column 'topic'"),
        ({**ONCE, "topic": " "}, {}, "'topic' of the oncelog sink is empty"),
        ({**ONCE, "topci": "t"}, {}, "no option 'topci'; did you mean 'topic'"),
        ({**ONCE, "mode": "twice"}, {}, "one of exactly-once, idempotent, at-least-once"),
        ({**SERVERS, "topic": "t", "mode": "exactly-once"}, {}, "needs the option 'transactional.id.prefix'"),
        ({**ONCE, "mode": "idempotent"}, {}, "'transactional.id.prefix' belongs to mode=exactly-once"),
        ({**SERVERS, "topic": "t", "group.id": "g"}, {}, "'group.id' belongs to mode=exactly-once"),
        ({**SERVERS, "topic": "t", "atomic": "batch"}, {}, "atomic=batch needs transactions"),
        ({**ONCE, "create.partitions": "4"}, {}, "set create=true"),
        ({**ONCE, "create.config.retention.ms": "4"}, {}, "set create=true"),
        ({**ONCE, "create": "true", "create.partitions": "0"}, {}, "'create.partitions' .* at least 1"),
        ({**ONCE, "create.partition": "4"}, {}, "no option 'create.partition'; did you mean 'create.partitions'"),
        ({**ONCE, "transactional.id.prefix": "a b"}, {}, "letters, digits"),
        ({**ONCE, "transactional.id.prefix": "a" * 201}, {}, "at most 200"),
        ({**ONCE, "kafka.transactional.id": "x"}, {}, "makes its own"),
        ({**ONCE, "kafka.enable.idempotence": "false"}, {}, "the option 'mode'"),
        ({**ONCE, "kafka.lingerr.ms": "5"}, {}, "did you mean linger.ms"),
        ({**ONCE, "kafka.linger.ms": "soon"}, {}, "linger.ms"),
        (ONCE, {"valu": "binary"}, "needs a column 'value'.*only 'valu'; did you mean 'valu'"),
        (ONCE, {"value": "struct<a:int>"}, "'value' is string or binary, not struct<a:int>"),
        (ONCE, {"value": "string", "partition": "string"}, "'partition' is int"),
        (ONCE, {"value": "string", "headers": "string"}, "'headers' is array<struct"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, str], types: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        settings(options, **types)
