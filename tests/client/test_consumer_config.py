"""Each decision about contradictions that the module's docstring states, and what a user reads in each case."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from oncelog.client.consumer_config import ConsumerConfig, duration_ms
from oncelog.errors import InvalidConfig
from oncelog.types import IsolationLevel


def made(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig.of("a:1", **settings)


def changed(**settings: Any) -> dict[str, Any]:
    """What is not as it is by default."""
    config, default = made(**settings), made()
    pairs = ((each.name, getattr(config, each.name)) for each in fields(config))
    return {name: value for name, value in pairs if value != getattr(default, name)}


def refusal(**settings: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        made(**settings)
    return caught.value.message


def test_the_defaults_are_themselves_allowed() -> None:
    """What a user reads in the table may be written down without changing anything."""
    default = made(group_id="g")
    given = {each.name: getattr(default, each.name) for each in fields(default)}
    assert ConsumerConfig.of({**given, "bootstrap_servers": "a:1"}) == default


def test_keys_as_pasted_from_kafkas_documentation() -> None:
    pasted = {
        "bootstrap.servers": "a:1,b:2",
        "group.id": "billing",
        "enable.auto.commit": "false",
        "auto.offset.reset": "Earliest",
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor,"
        " org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer",
        "max.poll.records": "100",
        "fetch.max.wait.ms": "50",
    }
    by_argument = ConsumerConfig.of(
        "a:1,b:2",
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=IsolationLevel.READ_COMMITTED,
        partition_assignment_strategy=["range", "cooperative-sticky"],
        key_deserializer="str",
        value_deserializer="int",
        max_poll_records=100,
        fetch_max_wait_ms=50,
    )
    assert ConsumerConfig.of(pasted) == by_argument
    assert by_argument.reads_committed


# --- groups -----------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_automatically_in_a_group_only() -> None:
    assert not made().enable_auto_commit
    assert made(group_id="g").enable_auto_commit
    assert not made(group_id="g", enable_auto_commit=False).enable_auto_commit
    assert not made(enable_auto_commit=False).enable_auto_commit
    assert refusal(enable_auto_commit=True) == (
        "enable.auto.commit is true, but offsets are committed for a group: set group.id, or leave enable.auto.commit"
        " out"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("session_timeout_ms", 6_000), ("heartbeat_interval_ms", 100), ("partition_assignment_strategy", "range")],
)
def test_what_the_broker_decides_is_not_for_members_to_say(name: str, value: Any) -> None:
    assert getattr(made(group_id="g", **{name: value}), name) in (value, (value,))
    said = refusal(group_id="g", group_protocol="consumer", **{name: value})
    assert said.startswith(f"{name.replace('_', '.')} cannot be set with group.protocol=consumer, where the broker")
    assert said.endswith("leave it out, or set group.protocol=classic")


def test_a_remote_assignor_is_for_groups_that_the_broker_assigns() -> None:
    config = made(group_id="g", group_protocol="CONSUMER", group_remote_assignor="uniform")
    assert config.uses_kip848
    assert config.group_remote_assignor == "uniform"
    assert "group.remote.assignor cannot be set with group.protocol=classic" in refusal(
        group_id="g", group_remote_assignor="uniform"
    )


@pytest.mark.parametrize("name", ["group_instance_id", "group_remote_assignor"])
def test_a_members_settings_need_a_group(name: str) -> None:
    said = refusal(group_protocol="consumer", **{name: "x"})
    assert said == f"{name.replace('_', '.')} is for members of a group: set group.id, or leave it out"
    assert changed(**{name: None}) == {}


@pytest.mark.parametrize("name", ["group_id", "group_instance_id", "group_remote_assignor"])
@pytest.mark.parametrize("value", ["", "  ", 7])
def test_an_empty_name_is_none(name: str, value: Any) -> None:
    assert "a non-empty string, or left out" in refusal(**{"group_id": "g", name: value})


class OwnAssignor:
    name = "own"

    def assign(self, cluster: object, subscriptions: object) -> None: ...


def test_assignors() -> None:
    own = OwnAssignor()
    assert made(partition_assignment_strategy="sticky").partition_assignment_strategy == ("sticky",)
    assert made(partition_assignment_strategy=own).partition_assignment_strategy == (own,)
    given = ["RoundRobin", own, "roundrobin"]
    assert made(partition_assignment_strategy=given).partition_assignment_strategy == ("roundrobin", own)
    assert "did you mean sticky?" in refusal(partition_assignment_strategy="stiky")
    for bad in ("", [], 7, [7], [OwnAssignor.assign]):
        assert "one or several of range" in refusal(partition_assignment_strategy=bad)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_what_was_not_given_follows_what_was() -> None:
    assert changed(session_timeout_ms=6_000) == {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}
    assert changed(session_timeout_ms=90_000) == {"session_timeout_ms": 90_000}
    assert changed(fetch_queue_max_bytes=1_000) == {"fetch_queue_max_bytes": 1_000, "fetch_max_bytes": 1_000}
    assert changed(request_timeout_ms=300) == {"request_timeout_ms": 300, "fetch_max_wait_ms": 150}
    assert changed(retry_backoff_ms=5_000) == {"retry_backoff_ms": 5_000, "retry_backoff_max_ms": 5_000}
    assert changed(reconnect_backoff_ms=9_000) == {"reconnect_backoff_ms": 9_000, "reconnect_backoff_max_ms": 9_000}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"heartbeat_interval_ms": 6_000, "session_timeout_ms": 6_000},
            "heartbeat.interval.ms (6000) is not less than session.timeout.ms (6000): raise session.timeout.ms to at"
            " least 6001, or lower heartbeat.interval.ms to at most 5999",
        ),
        (
            {"fetch_max_wait_ms": 40_000},
            "fetch.max.wait.ms (40000) is not less than request.timeout.ms (30000): raise request.timeout.ms to at"
            " least 40001, or lower fetch.max.wait.ms to at most 29999",
        ),
        (
            {"fetch_max_bytes": 2_000, "fetch_queue_max_bytes": 1_000},
            "fetch.max.bytes (2000) is larger than fetch.queue.max.bytes (1000): raise fetch.queue.max.bytes to at"
            " least 2000, or lower fetch.max.bytes to at most 1000",
        ),
        (
            {"fetch_min_bytes": 2_000, "fetch_max_bytes": 1_000},
            "fetch.min.bytes (2000) is larger than fetch.max.bytes (1000): raise fetch.max.bytes to at least 2000, or"
            " lower fetch.min.bytes to at most 1000",
        ),
        (
            {"retry_backoff_ms": 10, "retry_backoff_max_ms": 9},
            "retry.backoff.ms (10) is larger than retry.backoff.max.ms (9): raise retry.backoff.max.ms to at least 10,"
            " or lower retry.backoff.ms to at most 9",
        ),
    ],
)
def test_numbers_that_contradict_each_other(settings: dict[str, int], said: str) -> None:
    assert refusal(**settings) == said


@pytest.mark.parametrize(
    "settings",
    [
        {"max_poll_records": 0},
        {"max_poll_interval_ms": 0},
        {"session_timeout_ms": 0},
        {"fetch_min_bytes": -1},
        {"fetch_queue_max_bytes": 0},
        {"request_timeout_ms": 0},
        {"auto_commit_interval_ms": 2**31},
    ],
)
def test_numbers_out_of_bounds(settings: dict[str, int]) -> None:
    assert "whole number" in refusal(**settings)


# --- where to begin ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "policy", "ago_ms"),
    [
        ("earliest", "earliest", None),
        ("LATEST", "latest", None),
        ("none", "none", None),
        ("smallest", "earliest", None),
        ("end", "latest", None),
        ("by_duration:PT1H", "by_duration:PT1H", 3_600_000),
        ("BY_DURATION:p1dt2h3m4.5s", "by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0S", "by_duration:PT0S", 0),
    ],
)
def test_reset_policies(given: str, policy: str, ago_ms: int | None) -> None:
    config = made(auto_offset_reset=given)
    assert (config.auto_offset_reset, config.reset_duration_ms) == (policy, ago_ms)


@pytest.mark.parametrize(
    "given", ["first", "by_duration", "by_duration:", "by_duration:-PT1H", "by_duration:P", "by_duration:P1DT", 7]
)
def test_other_policies_are_refused(given: Any) -> None:
    assert "earliest, latest, none, or by_duration: and an ISO 8601 duration" in refusal(auto_offset_reset=given)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1D", "P-1D", "PT1.5H", "PT1S2M", "P1Y"])
def test_what_is_no_duration(text: str) -> None:
    assert duration_ms(text) is None


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_isolation_levels() -> None:
    assert made(isolation_level="READ_COMMITTED").isolation_level is IsolationLevel.READ_COMMITTED
    assert "did you mean read_committed?" in refusal(isolation_level="commited")


def test_deserializers_and_interceptors_are_names_or_objects() -> None:
    class Own:
        def deserialize(self, topic: str, data: bytes) -> bytes:
            return data

        def on_consume(self, records: list[Any]) -> list[Any]:
            return records

    own = Own()
    config = made(key_deserializer=own, value_deserializer=len, interceptor_classes=[own, Own])
    assert (config.key_deserializer, config.value_deserializer, config.interceptors) == (own, len, (own, Own))
    assert "did you mean json?" in refusal(value_deserializer="jsn")
    for bad in ("Own", 7, [object()]):
        assert "with `on_consume(records)` or `on_commit(offsets)`" in refusal(interceptors=bad)


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("queued.max.messages.kbytes", "use fetch.queue.max.bytes"),
        ("enable.auto.offset.store", "commit() what was processed"),
        ("ssl.ca.location", "PLAINTEXT"),
        ("metrics.num.samples", "read consumer.metrics()"),
        ("fetch.max.byte", "did you mean fetch.max.bytes?"),
        ("security.protocol", "PLAINTEXT only"),
    ],
)
def test_keys_that_people_bring_along(key: str, remedy: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        ConsumerConfig.of({"bootstrap.servers": "a:1", key: "1"})
    assert remedy in caught.value.message


def test_the_shortest_session_leaves_room_for_a_heartbeat() -> None:
    assert "session.timeout.ms is a whole number of milliseconds of at least 2, not 1" in refusal(
        group_id="g", session_timeout_ms=1
    )
    assert ConsumerConfig.of("localhost:9092", group_id="g", session_timeout_ms=2).heartbeat_interval_ms == 1
