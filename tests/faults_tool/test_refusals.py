"""Whatever a client asked for is what it is told that it does not get."""

from __future__ import annotations

import pytest

from oncelog.errors import ConcurrentTransactions
from oncelog.faults.refusals import is_refusable, refused_response
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import decode_response_header, encode_request
from oncelog.wire.schema import load_schema

CODE = ConcurrentTransactions.code


def versions(api: ApiKey) -> range:
    valid = load_schema(f"{api.schema_prefix}Request").valid
    return range(valid.lowest, valid.highest + 1)


def refused(api: ApiKey, version: int, body: Message) -> Message:
    request = encode_request(api, version, 7, "test", codec.encode(f"{api.schema_prefix}Request", version, body))
    answer = memoryview(refused_response(memoryview(request)[4:], CODE))
    assert int.from_bytes(answer[:4]) == len(answer) - 4
    correlation_id, position = decode_response_header(api, version, answer[4:])
    assert correlation_id == 7
    return codec.decode_exactly(f"{api.schema_prefix}Response", version, answer[4:], position)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_every_partition_of_a_produce_request(version: int) -> None:
    topic = {"partition_data": [{"index": 3, "records": None}, {"index": 5, "records": None}]}
    named = {**topic, "name": "t"} if version < 13 else topic
    answer = refused(ApiKey.PRODUCE, version, {"acks": -1, "topic_data": [named]})
    (told,) = answer["responses"]
    assert told["name"] == ("t" if version < 13 else "")
    assert [(one["index"], one["error_code"]) for one in told["partition_responses"]] == [(3, CODE), (5, CODE)]


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_every_partition_that_was_to_be_added(version: int) -> None:
    topics = [{"name": "t", "partitions": [1, 2]}]
    if version < 4:
        body: Message = {"v3_and_below_topics": topics}
        told = refused(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)["results_by_topic_v3_and_below"]
    else:
        body = {"transactions": [{"transactional_id": "one", "topics": topics}]}
        (transaction,) = refused(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)["results_by_transaction"]
        assert transaction["transactional_id"] == "one"
        told = transaction["topic_results"]
    (results,) = (topic["results_by_partition"] for topic in told)
    assert [(one["partition_index"], one["partition_error_code"]) for one in results] == [(1, CODE), (2, CODE)]


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT) for version in versions(api)],
)
def test_every_partition_of_a_commit_of_offsets(api: ApiKey, version: int) -> None:
    partitions = [{"partition_index": 4, "committed_offset": 1}]
    (topic,) = refused(api, version, {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]})["topics"]
    assert [(one["partition_index"], one["error_code"]) for one in topic["partitions"]] == [(4, CODE)]


@pytest.mark.parametrize("api", [ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.HEARTBEAT])
def test_answers_with_one_error_for_all(api: ApiKey) -> None:
    assert is_refusable(api)
    for version in versions(api):
        assert refused(api, version, {})["error_code"] == CODE


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.FETCH, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH])
def test_answers_whose_error_some_versions_lack_are_not_made_up(api: ApiKey) -> None:
    assert not is_refusable(api)
