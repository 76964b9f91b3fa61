"""Configs of brokers: what is described, and from which level; what may change while a broker runs, what is refused,
and that secrets are never shown. Both brokers are asked the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.compare import assert_equal
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient

Brokers = dict[str, BrokerProcess]

BROKER = 4
SET, DELETE = 0, 1
OWN, ALL = "1", ""
UNKNOWN, BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(10)
NUMBERS = (INT, SHORT, LONG, DOUBLE)
INVALID_REQUEST = 42

OTHER_TYPES = {"log.dir": "one directory", "log.dirs": "one directory"}


def describe(client: RawClient, name: str, keys: list[str] | None = None) -> dict[str, Message]:
    resource = {"resource_type": BROKER, "resource_name": name, "configuration_keys": keys}
    answer = client.request("describe_configs", 4, {"resources": [resource], "include_synonyms": True})
    (result,) = answer["results"]
    assert result["error_code"] == 0, result
    return {each["name"]: each for each in result["configs"]}


def change(client: RawClient, name: str, *pairs: tuple[str, str | None], validate_only: bool = False) -> Message:
    """None deletes."""
    configs = [{"name": key, "config_operation": DELETE if text is None else SET, "value": text} for key, text in pairs]
    resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
    answer = client.request("incremental_alter_configs", 1, {"resources": [resource], "validate_only": validate_only})
    (result,) = answer["responses"]
    return dict(result)


def test_the_keys_that_may_change_are_kafkas(both_brokers: Brokers) -> None:
    """Each with Kafka's type, and secrets known as such. What is read-only is so on both."""
    found = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            found[kind] = describe(client, OWN)
    if len(found) < 2:
        pytest.skip("nothing to compare")
    kafka, ours = found["kafka"], found["oncelog"]
    changeable = {name for name, entry in kafka.items() if not entry["read_only"]}
    assert {name for name, entry in ours.items() if not entry["read_only"]} == changeable
    facts = ("read_only", "is_sensitive", "config_type")
    common = kafka.keys() & ours.keys() - OTHER_TYPES.keys()
    assert len(common) > 150
    assert {name: [ours[name][fact] for fact in facts] for name in common} == {
        name: [kafka[name][fact] for fact in facts] for name in common
    }


def _sample(entry: Message) -> str:
    """A value that is legal, as far as the key's type tells."""
    if entry["value"] is not None:
        return str(entry["value"])
    return {BOOLEAN: "true", DOUBLE: "0.5"}.get(entry["config_type"], "5" if entry["config_type"] in NUMBERS else "x")


def _attempts(entry: Message) -> Iterator[tuple[str, str, str]]:
    texts = {"legal": _sample(entry)}
    if entry["config_type"] in (BOOLEAN, *NUMBERS):
        texts |= {text: text for text in ("abc", "-5", "0")}
    return ((level, kind, text) for level in (OWN, ALL) for kind, text in texts.items())


# Kafka lets these be negative, and then nobody knows what they mean.
STRICTER = {("log.flush.interval.ms", "-5"), ("log.local.retention.ms", "-5")}


def test_every_key_takes_and_refuses_what_kafkas_does(both_brokers: Brokers) -> None:
    """All that may change, for one broker and for all of them: legal values, wrong types, numbers out of range. Nothing
    is changed: the brokers are asked to look only."""
    answers: dict[str, dict[tuple[str, str, str], int]] = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            entries = {name: entry for name, entry in describe(client, OWN).items() if not entry["read_only"]}
            answers[kind] = {
                (name, level, kind_of_value): change(client, level, (name, text), validate_only=True)["error_code"]
                for name, entry in entries.items()
                for level, kind_of_value, text in _attempts(entry)
                if (name, text) not in STRICTER
            }
    assert_equal(answers)


REFUSED: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "read-only": (OWN, [("num.partitions", "3"), ("log.retention.hours", "5")]),
    "read-only for all": (ALL, [("num.partitions", "3")]),
    "read-only before a wrong value": (OWN, [("num.partitions", "x"), ("num.io.threads", "x")]),
    "without the listener's name": (OWN, [("ssl.keystore.location", "x")]),
    "one broker's, for all": (ALL, [("sasl.jaas.config", "x")]),
    "one listener's, for all": (ALL, [("listener.name.plaintext.ssl.keystore.location", "x")]),
    "a wrong value before the level": (ALL, [("sasl.login.refresh.buffer.seconds", "x")]),
    "a wrong type": (OWN, [("log.cleaner.io.buffer.load.factor", "x")]),
    "out of range": (ALL, [("background.threads", "0")]),
    "no choice": (OWN, [("ssl.client.auth", "x")]),
    "no class": (OWN, [("principal.builder.class", "x")]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_kafkas_words(both_brokers: Brokers, case: str) -> None:
    level, pairs = REFUSED[case]
    words = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            answer = change(client, level, *pairs)
        assert answer["error_code"] == INVALID_REQUEST, (kind, answer)
        words[kind] = sorted(answer["error_message"].replace("[", ", ").rstrip("]").split(", "))
    assert_equal(words)


CHANGES: list[tuple[str, str, str]] = [
    (OWN, "sasl.jaas.config", "hidden"),
    (OWN, "listener.name.internal.ssl.keystore.password", "hidden"),
    (OWN, "listener.name.internal.ssl.keystore.location", "/a/file"),
    (OWN, "listener.name.internal.sasl.kerberos.service.name", "service"),
    (OWN, "leader.replication.throttled.rate", "1000"),
    (OWN, "background.threads", "11"),
    (ALL, "background.threads", "12"),
    (ALL, "listener.name.plaintext.max.connections", "77"),
    (ALL, "log.cleaner.io.buffer.size", "524289"),
    (ALL, "log.segment.bytes", "1048577"),
    (OWN, "log.retention.ms", "99999999"),
]


def test_what_was_changed_is_described_with_its_levels(both_brokers: Brokers) -> None:
    names = [name for _, name, _ in CHANGES]
    described: dict[str, Any] = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            try:
                for level, name, text in CHANGES:
                    done = change(client, level, (name, text))
                    assert done["error_code"] == 0, (kind, name, done)
                # A broker of Kafka's hears of it after its controller has answered.
                eventually(
                    lambda client=client: describe(client, OWN)["log.retention.ms"]["value"] == "99999999",  # type: ignore[misc]
                    "the last change",
                )
                described[kind] = [_told(describe(client, OWN), names), _told(describe(client, ALL), names)]
            finally:
                for level, name, _ in reversed(CHANGES):
                    assert change(client, level, (name, None))["error_code"] == 0
            eventually(
                lambda client=client: not describe(client, ALL),  # type: ignore[misc]
                "everything as it was",
            )
    for own, _ in described.values():
        assert own["sasl.jaas.config"]["is_sensitive"]
        assert "hidden" not in str(described)
        sources = [each["source"] for each in own["log.retention.ms"]["synonyms"]]
        assert sources == [2, 4, 5]  # set for this broker, at the start, by default
    assert_equal(described)


def _told(entries: dict[str, Message], names: list[str]) -> dict[str, Message]:
    kept = {name: {**entries[name]} for name in names if name in entries}
    for entry in kept.values():
        entry.pop("documentation", None)
        if entry["name"] == "log.cleaner.io.buffer.size":  # Kafka's broker is started with another
            entry["synonyms"] = [each for each in entry["synonyms"] if each["source"] != 4]
    return kept


def test_alter_configs_replaces_all(both_brokers: Brokers) -> None:
    found = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            assert change(client, OWN, ("compression.lz4.level", "5"))["error_code"] == 0
            resource = {
                "resource_type": BROKER,
                "resource_name": OWN,
                "configs": [{"name": "background.threads", "value": "9"}],
            }
            (answer,) = client.request("alter_configs", 2, {"resources": [resource]})["responses"]
            assert answer["error_code"] == 0, answer
            eventually(
                lambda client=client: describe(client, OWN)["background.threads"]["value"] == "9",  # type: ignore[misc]
                "the change",
            )
            found[kind] = _told(describe(client, OWN), ["compression.lz4.level", "background.threads"])
            change(client, OWN, ("background.threads", None))
    assert_equal(found)
