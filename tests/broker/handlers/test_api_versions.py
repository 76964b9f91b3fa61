"""ApiVersions: the first thing that a client asks, and the one answer that it must get whatever version it speaks."""

from __future__ import annotations

import struct

import pytest

from oncelog.wire.api import SUPPORTED, ApiKey
from tests.broker.support import Desk, MetricsPage
from tests.support.faulty_storage import FaultyStorage
from tests.support.raw import RawClient, encode_header, encode_request

INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35
KEY = 18
HIGHEST = 4
SOFTWARE = {"client_software_name": "some-client", "client_software_version": "1.2.3"}


@pytest.mark.parametrize("version", range(HIGHEST + 1))
def test_every_version_tells_what_is_served(client: RawClient, version: int) -> None:
    answer = client.request("api_versions", version, SOFTWARE)
    assert answer["error_code"] == 0
    told = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    assert told == {int(key): (served.lowest, served.highest) for key, served in SUPPORTED.items()}


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_clients_use_the_protocol_of_transactions_that_they_are_told(version: int, level: int) -> None:
    desk = Desk(FaultyStorage(), "/data", oncelog_transaction_version=str(level))
    answer = desk.ask("api_versions", version, SOFTWARE)
    finalized = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    assert finalized.get("transaction.version", 0) == level
    supported = {each["name"]: (each["min_version"], each["max_version"]) for each in answer["supported_features"]}
    assert supported.get("transaction.version") == (None if version == 3 else (0, 2)), "from 0 is told from 4 on"


def test_librdkafka_finds_what_it_needs(client: RawClient) -> None:
    """Produce from 0 on, or it turns compression off (KAFKA-18659); and OffsetForLeaderEpoch 2."""
    answer = client.request("api_versions", 3, SOFTWARE)
    told = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    assert told[ApiKey.PRODUCE] == (0, 13)
    assert told[ApiKey.OFFSET_FOR_LEADER_EPOCH][0] <= 2 <= told[ApiKey.OFFSET_FOR_LEADER_EPOCH][1]


def test_the_answers_header_has_no_tagged_fields(client: RawClient) -> None:
    """Or a client could not read it before it knows which version the broker speaks."""
    client.send_bytes(encode_request("api_versions", 3, SOFTWARE, correlation_id=99))
    frame = client.receive_frame()
    assert struct.unpack_from(">ih", frame) == (99, 0), "the error code follows the correlation id at once"


@pytest.mark.parametrize("version", [HIGHEST + 1, 127, 32767, -1])
def test_an_unknown_version_is_answered_in_the_oldest_schema(client: RawClient, version: int) -> None:
    """Error 35 and the range of this API alone, so that the client can ask again, on the same connection."""
    payload = encode_header(KEY, version, 7, "newer", flexible=version > 0) + b"who knows what this means"
    client.send_bytes(struct.pack(">i", len(payload)) + payload)
    expected = struct.pack(">ihihhh", 7, UNSUPPORTED_VERSION, 1, KEY, 0, HIGHEST)
    assert client.receive_frame() == expected
    assert client.request("api_versions", HIGHEST, SOFTWARE)["error_code"] == 0


@pytest.mark.parametrize("name", ["", "-client", "client-", ".x", "two words", "sn\u00f6", "a\n", "x" * 100 + "_"])
@pytest.mark.parametrize("field", SOFTWARE)
def test_software_names_that_are_none(client: RawClient, field: str, name: str) -> None:
    answer = client.request("api_versions", 3, {**SOFTWARE, field: name})
    assert answer["error_code"] == INVALID_REQUEST
    assert answer["api_keys"] == []
    assert client.request("api_versions", 3, SOFTWARE)["error_code"] == 0, "the connection goes on"


@pytest.mark.parametrize("name", ["a", "A1", "apache-kafka-java", "4.3.1", "a--b..c", "0" * 200])
@pytest.mark.parametrize("field", SOFTWARE)
def test_software_names(client: RawClient, field: str, name: str) -> None:
    assert client.request("api_versions", 3, {**SOFTWARE, field: name})["error_code"] == 0


def test_refusals_are_counted(client: RawClient, page: MetricsPage) -> None:
    def count(error: str) -> float:
        return page.value("kafka_network_requestmetrics_errors_total", request="ApiVersions", error=error)

    before = count("INVALID_REQUEST"), count("UNSUPPORTED_VERSION")
    client.request("api_versions", 3, {**SOFTWARE, "client_software_name": "-"})
    payload = encode_header(KEY, 99, 7, "newer", flexible=True)
    client.send_bytes(struct.pack(">i", len(payload)) + payload)
    client.receive_frame()
    assert (count("INVALID_REQUEST"), count("UNSUPPORTED_VERSION")) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize(
    ("name", "version", "is_paced"),
    [
        ("librdkafka", "2.16.0", True),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", True),
        ("apache-kafka-java", "4.3.1", False),
        ("aiokafka", "0.14.0", False),
    ],
)
def test_clients_that_pause_when_their_queue_is_full_are_known(name: str, version: str, is_paced: bool) -> None:
    desk = Desk(FaultyStorage(), "/data")
    desk.ask("api_versions", 3, {"client_software_name": name, "client_software_version": version})
    assert (desk.peer.pace is not None) is is_paced


@pytest.mark.parametrize("version", [0, 2])
def test_clients_that_do_not_say_who_they_are(version: int) -> None:
    desk = Desk(FaultyStorage(), "/data")
    desk.ask("api_versions", version, {})
    assert desk.peer.pace is None
