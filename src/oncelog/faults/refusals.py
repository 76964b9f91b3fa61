"""The answer with which a broker refuses a whole request: the proxy gives it in the broker's place. Pure.

Most answers have one error code for all they were asked. Those that speak of partitions have one for each, so the
request must be read first.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.coordinator.transactions.answers import refusal
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import decode_request_header, encode_response
from oncelog.wire.schema import load_schema


def is_refusable(api_key: ApiKey) -> bool:
    return api_key in _BY_PARTITION or _has_one_error(api_key)


def refused_response(frame: memoryview, code: int) -> bytes:
    """The answer to a request, which is given without its size prefix. Raises MalformedMessage, UnsupportedVersion."""
    header, position = decode_request_header(frame)
    api_key, version = ApiKey(header.api_key), header.api_version
    by_partition = _BY_PARTITION.get(api_key)
    if by_partition is None:
        answer: Message = {"error_code": code}
    else:
        request = codec.decode_exactly(f"{api_key.schema_prefix}Request", version, frame, position)
        answer = by_partition(request, version, code)
    return encode_response(header, codec.encode(f"{api_key.schema_prefix}Response", version, answer))


def _has_one_error(api_key: ApiKey) -> bool:
    """In every version: one that lacks it would call the request done."""
    schema = load_schema(f"{api_key.schema_prefix}Response")
    return any(
        field.name == "error_code" and field.versions.overlap(schema.valid) == schema.valid for field in schema.fields
    )


def _refused_produce(request: Message, version: int, code: int) -> Message:
    topics = []
    for topic in request["topic_data"]:
        partitions = [{"index": one["index"], "error_code": code, "base_offset": -1} for one in topic["partition_data"]]
        topics.append({"name": topic["name"], "topic_id": topic["topic_id"], "partition_responses": partitions})
    return {"responses": topics}


def _refused_additions(request: Message, version: int, code: int) -> Message:
    return refusal(ApiKey.ADD_PARTITIONS_TO_TXN, request, version, code)


def _refused_offsets(request: Message, version: int, code: int) -> Message:
    """Of OffsetCommit, whose newest versions name topics by their ids, and of TxnOffsetCommit."""
    topics = []
    for topic in request["topics"]:
        partitions = [{"partition_index": one["partition_index"], "error_code": code} for one in topic["partitions"]]
        topics.append({**{key: topic[key] for key in ("name", "topic_id") if key in topic}, "partitions": partitions})
    return {"topics": topics}


_BY_PARTITION: dict[ApiKey, Callable[[Message, int, int], Message]] = {
    ApiKey.PRODUCE: _refused_produce,
    ApiKey.ADD_PARTITIONS_TO_TXN: _refused_additions,
    ApiKey.OFFSET_COMMIT: _refused_offsets,
    ApiKey.TXN_OFFSET_COMMIT: _refused_offsets,
}
