"""The model itself: its answers to an append, and what each fault does to a log, a line and a leader."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import decode_response_header, encode_request
from oncelog.wire.produce import ProducedPartition, ProduceResponse, decode_produce_response
from tests.sim.model_cluster import VERSIONS, Line, ModelCluster
from tests.sim.model_partition import FailAfterAppend, Refuse
from tests.support.batches import make_batch

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER, OTHER_PRODUCER = 7, 8
OK, NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW_AFTER_APPEND = 0, 6, 7, 10, 20
OUT_OF_ORDER, FENCED, INVALID_RECORD, CORRUPT, UNKNOWN_TOPIC = 45, 47, 87, 2, 3
LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def cluster() -> ModelCluster:
    return ModelCluster({"t": 3})


def batch_of(*values: bytes, producer_id: int = PRODUCER, epoch: int = 0, sequence: int = 0) -> bytes:
    return make_batch(values, producer_id=producer_id, epoch=epoch, sequence=sequence)


def produce_frame(
    records: bytes | None, partition: TopicPartition = FIRST, *, acks: int = -1, version: int = 12
) -> bytes:
    return named_produce_frame({"name": partition.topic}, partition.partition, records, acks, version)


def named_produce_frame(topic: dict[str, Any], partition: int, records: bytes | None, acks: int, version: int) -> bytes:
    data = {**topic, "partition_data": [{"index": partition, "records": records}]}
    body = codec.encode("ProduceRequest", version, {"acks": acks, "timeout_ms": 1_000, "topic_data": [data]})
    return encode_request(ApiKey.PRODUCE, version, 1, "test", body)


def open_line(cluster: ModelCluster, node_id: int) -> Line:
    line = cluster.connect(node_id)
    assert line is not None
    return line


def take_answer(line: Line, version: int = 12) -> ProduceResponse:
    frame = memoryview(line.answers.popleft())[4:]
    _, position = decode_response_header(ApiKey.PRODUCE, version, frame)
    return decode_produce_response(frame, position, version)


def produce(
    cluster: ModelCluster, records: bytes | None, partition: TopicPartition = FIRST, *, node: int | None = None
) -> ProducedPartition:
    line = open_line(cluster, cluster.partitions[partition].leader if node is None else node)
    line.write(produce_frame(records, partition))
    line.serve()
    return take_answer(line).topics[0].partitions[0]


def ask(cluster: ModelCluster, api_key: ApiKey, version: int, body: dict[str, Any]) -> dict[str, Any]:
    line = open_line(cluster, 0)
    name = api_key.schema_prefix
    line.write(encode_request(api_key, version, 1, "test", codec.encode(f"{name}Request", version, body)))
    line.serve()
    frame = memoryview(line.answers.popleft())[4:]
    _, position = decode_response_header(api_key, version, frame)
    return codec.decode_exactly(f"{name}Response", version, frame, position)


def answer(outcome: ProducedPartition) -> tuple[int, int]:
    return outcome.error_code, outcome.base_offset


# --- the broker's answer to an append ---


def test_batches_in_order_are_appended(cluster: ModelCluster) -> None:
    assert answer(produce(cluster, batch_of(b"a", b"b"))) == (OK, 0)
    assert answer(produce(cluster, batch_of(b"c", sequence=2))) == (OK, 2)
    assert cluster.partitions[FIRST].records == [b"a", b"b", b"c"]


def test_each_of_the_last_five_batches_is_recognised_and_no_older_one(cluster: ModelCluster) -> None:
    for number in range(6):
        produce(cluster, batch_of(b"%d" % number, sequence=number))
    for number in range(1, 6):
        assert answer(produce(cluster, batch_of(b"%d" % number, sequence=number))) == (OK, number)
    assert answer(produce(cluster, batch_of(b"0", sequence=0))) == (OUT_OF_ORDER, -1)
    assert cluster.partitions[FIRST].records == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(("values", "sequence"), [((b"b",), 1), ((b"a",), 0), ((b"c",), 3)])
def test_partial_overlaps_and_gaps_are_out_of_order(
    cluster: ModelCluster, values: tuple[bytes, ...], sequence: int
) -> None:
    produce(cluster, batch_of(b"a", b"b"))
    assert answer(produce(cluster, batch_of(*values, sequence=sequence))) == (OUT_OF_ORDER, -1)
    assert cluster.partitions[FIRST].records == [b"a", b"b"]


def test_an_unknown_producer_may_begin_anywhere(cluster: ModelCluster) -> None:
    assert answer(produce(cluster, batch_of(b"a", sequence=40))) == (OK, 0)
    assert answer(produce(cluster, batch_of(b"x", producer_id=OTHER_PRODUCER))) == (OK, 1)
    assert answer(produce(cluster, batch_of(b"b", sequence=41))) == (OK, 2)


def test_a_forgotten_producer_may_begin_anywhere_and_repeats_are_not_recognised(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a", sequence=0))
    cluster.forget_producer(PRODUCER)
    assert answer(produce(cluster, batch_of(b"a", sequence=0))) == (OK, 1)


def test_epochs_only_rise_and_each_begins_at_zero(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a", epoch=1))
    assert answer(produce(cluster, batch_of(b"b", epoch=0, sequence=1))) == (FENCED, -1)
    assert answer(produce(cluster, batch_of(b"b", epoch=2, sequence=1))) == (OUT_OF_ORDER, -1)
    assert answer(produce(cluster, batch_of(b"b", epoch=2, sequence=0))) == (OK, 1)
    assert answer(produce(cluster, batch_of(b"a", epoch=1))) == (FENCED, -1)


def test_sequences_wrap_between_batches_and_inside_one(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a", sequence=LAST_SEQUENCE))
    assert answer(produce(cluster, batch_of(b"b", sequence=0))) == (OK, 1)
    cluster.forget_producer(PRODUCER)
    produce(cluster, batch_of(b"c", b"d", b"e", sequence=LAST_SEQUENCE))
    assert answer(produce(cluster, batch_of(b"f", sequence=2))) == (OK, 5)


def test_a_plain_producer_has_no_state(cluster: ModelCluster) -> None:
    plain = batch_of(b"a", producer_id=-1, epoch=-1, sequence=-1)
    assert answer(produce(cluster, plain)) == (OK, 0)
    assert answer(produce(cluster, plain)) == (OK, 1)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, INVALID_RECORD),
        (batch_of(b"a") + batch_of(b"b", sequence=1), INVALID_RECORD),
        (make_batch([b"a"], producer_id=PRODUCER, epoch=0, sequence=-1), INVALID_RECORD),
        (make_batch([b"a"], crc=1), CORRUPT),
    ],
)
def test_what_no_client_may_send_is_refused_and_remembered(
    cluster: ModelCluster, records: bytes | None, code: int
) -> None:
    assert answer(produce(cluster, records)) == (code, -1)
    assert len(cluster.complaints) == 1
    assert not cluster.partitions[FIRST].log


def test_a_large_batch_is_refused_without_complaint() -> None:
    cluster = ModelCluster({"t": 1}, max_message_bytes=100)
    assert answer(produce(cluster, batch_of(b"x" * 100))) == (TOO_LARGE, -1)
    assert answer(produce(cluster, batch_of(b"x"))) == (OK, 0)
    assert not cluster.complaints


# --- faults ---


def test_refused_means_not_executed(cluster: ModelCluster) -> None:
    cluster.plan(FIRST, Refuse(TIMED_OUT))
    assert answer(produce(cluster, batch_of(b"a"))) == (TIMED_OUT, -1)
    assert answer(produce(cluster, batch_of(b"a"))) == (OK, 0)


def test_failed_after_append_is_stored_and_its_repeat_is_recognised(cluster: ModelCluster) -> None:
    cluster.plan(FIRST, FailAfterAppend(TOO_FEW_AFTER_APPEND))
    assert answer(produce(cluster, batch_of(b"a"))) == (TOO_FEW_AFTER_APPEND, -1)
    assert answer(produce(cluster, batch_of(b"a"))) == (OK, 0)
    assert cluster.partitions[FIRST].records == [b"a"]


def test_a_new_leader_knows_the_producer(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a"))
    cluster.change_leader(FIRST, 2)
    refused = produce(cluster, batch_of(b"a"), node=0)
    assert answer(refused) == (NOT_LEADER, -1)
    assert refused.current_leader == (2, 1)
    assert answer(produce(cluster, batch_of(b"a"), node=2)) == (OK, 0)


def test_a_clean_election_keeps_what_is_replicated_and_may_lose_the_rest(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a"))
    cluster.plan(FIRST, FailAfterAppend(TIMED_OUT))
    produce(cluster, batch_of(b"b", sequence=1))
    cluster.change_leader(FIRST, 1, keep_unreplicated=True)
    assert cluster.partitions[FIRST].records == [b"a", b"b"]
    cluster.change_leader(FIRST, 2, keep_unreplicated=False)
    assert cluster.partitions[FIRST].records == [b"a"]
    assert answer(produce(cluster, batch_of(b"b", sequence=1))) == (OK, 1)
    assert not cluster.partitions[FIRST].torn_off


def test_a_repeat_is_acknowledged_only_once_it_is_replicated(cluster: ModelCluster) -> None:
    cluster.plan(FIRST, FailAfterAppend(TIMED_OUT))
    produce(cluster, batch_of(b"a"))
    assert cluster.partitions[FIRST].committed_end == 0
    produce(cluster, batch_of(b"a"))
    assert cluster.partitions[FIRST].committed_end == 1


def test_what_only_the_leader_acknowledged_is_not_replicated(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a"), acks=1))
    line.serve()
    assert cluster.partitions[FIRST].committed_end == 0
    cluster.partitions[FIRST].replicate()
    cluster.change_leader(FIRST, 1, keep_unreplicated=False)
    assert cluster.partitions[FIRST].records == [b"a"]


def test_an_unclean_election_tears_off_acknowledged_batches_and_their_memory(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a"))
    produce(cluster, batch_of(b"b", sequence=1))
    cluster.change_leader_uncleanly(FIRST, 1, lost_batches=1)
    assert cluster.partitions[FIRST].records == [b"a"]
    assert [stored.batch.records for stored in cluster.partitions[FIRST].torn_off] == [(b"b",)]
    assert answer(produce(cluster, batch_of(b"c", sequence=2))) == (OUT_OF_ORDER, -1)
    assert answer(produce(cluster, batch_of(b"b", sequence=1))) == (OK, 1)


# --- lines ---


def test_requests_are_served_in_order_when_the_test_says_so(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    both = produce_frame(batch_of(b"a")) + produce_frame(batch_of(b"b", sequence=1))
    line.write(both[:10])
    line.write(both[10:])
    assert not cluster.partitions[FIRST].log
    line.serve()
    assert cluster.partitions[FIRST].records == [b"a"]
    line.serve()
    assert [take_answer(line).topics[0].partitions[0].base_offset for _ in range(2)] == [0, 1]


def test_a_lost_answer_leaves_the_record(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a")))
    line.serve()
    line.end(requests_arrive=False)
    assert not line.answers
    assert cluster.partitions[FIRST].records == [b"a"]


def test_lost_requests_never_arrive(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a")))
    line.stall()
    line.write(produce_frame(batch_of(b"b", sequence=1)))
    line.serve()
    line.end(requests_arrive=True)
    assert not cluster.stragglers
    assert not cluster.partitions[FIRST].log


def test_requests_of_an_ended_line_may_arrive_late_in_their_order(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a")) + produce_frame(batch_of(b"b", sequence=1)))
    line.end(requests_arrive=True)
    produce(cluster, batch_of(b"a"))
    cluster.deliver_straggler(0)
    assert cluster.partitions[FIRST].records == [b"a"]
    cluster.deliver_straggler(0)
    assert cluster.partitions[FIRST].records == [b"a", b"b"]
    assert not cluster.stragglers


def test_an_executed_request_can_come_again(cluster: ModelCluster) -> None:
    produce(cluster, batch_of(b"a", producer_id=-1, epoch=-1, sequence=-1))
    cluster.deliver_again(0)
    assert cluster.partitions[FIRST].records == [b"a", b"a"]


def test_a_stopped_node_refuses_connections_and_loses_what_was_on_them(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a")))
    late = open_line(cluster, 0)
    late.write(produce_frame(batch_of(b"a")))
    late.end(requests_arrive=True)
    cluster.stop(0)
    assert not line.is_open
    assert not cluster.stragglers
    assert cluster.connect(0) is None
    cluster.start(0)
    assert answer(produce(cluster, batch_of(b"a"))) == (OK, 0)


def test_without_acknowledgement_an_error_ends_the_connection(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a"), acks=0))
    line.serve()
    assert cluster.partitions[FIRST].records == [b"a"]
    assert not line.answers
    assert not line.hung_up
    line.write(produce_frame(batch_of(b"b"), SECOND, acks=0))
    line.serve()
    assert line.hung_up


def test_throttling_is_told(cluster: ModelCluster) -> None:
    cluster.throttle_ms = 70
    line = open_line(cluster, 0)
    line.write(produce_frame(batch_of(b"a")))
    line.serve()
    assert take_answer(line).throttle_ms == 70


# --- the other APIs ---


def test_versions_are_those_of_the_model(cluster: ModelCluster) -> None:
    told = ask(cluster, ApiKey.API_VERSIONS, 4, {})["api_keys"]
    assert {one["api_key"]: (one["min_version"], one["max_version"]) for one in told} == VERSIONS


def test_metadata_names_published_leaders(cluster: ModelCluster) -> None:
    def leaders() -> list[tuple[int, int]]:
        (topic,) = ask(cluster, ApiKey.METADATA, 12, {"topics": [{"name": "t"}]})["topics"]
        return [(one["leader_id"], one["leader_epoch"]) for one in topic["partitions"]]

    assert leaders() == [(0, 0), (1, 0), (2, 0)]
    cluster.change_leader(FIRST, 2, published=False)
    assert leaders()[0] == (0, 0)
    cluster.publish()
    assert leaders()[0] == (2, 1)
    cluster.stop(2)
    assert [leader for leader, _ in leaders()] == [-1, 1, -1]


def test_metadata_can_fail(cluster: ModelCluster) -> None:
    asked = {"topics": [{"name": "t"}, {"name": "unknown"}]}
    cluster.refuse(ApiKey.METADATA, 5)
    codes = [topic["error_code"] for topic in ask(cluster, ApiKey.METADATA, 12, asked)["topics"]]
    assert codes == [5, UNKNOWN_TOPIC]
    codes = [topic["error_code"] for topic in ask(cluster, ApiKey.METADATA, 12, asked)["topics"]]
    assert codes == [OK, UNKNOWN_TOPIC]


def test_producer_ids_are_never_given_twice(cluster: ModelCluster) -> None:
    cluster.refuse(ApiKey.INIT_PRODUCER_ID, 14)
    answers = [ask(cluster, ApiKey.INIT_PRODUCER_ID, 5, {"transactional_id": None}) for _ in range(3)]
    assert [one["error_code"] for one in answers] == [14, OK, OK]
    assert answers[1]["producer_id"] != answers[2]["producer_id"]
    assert {one["producer_epoch"] for one in answers[1:]} == {0}


def test_topics_are_named_by_id_since_version_13(cluster: ModelCluster) -> None:
    line = open_line(cluster, 0)
    line.write(named_produce_frame({"topic_id": cluster.topic_ids["t"]}, 0, batch_of(b"a"), -1, 13))
    line.serve()
    told = take_answer(line, 13).topics[0]
    assert told.topic_id == cluster.topic_ids["t"]
    assert answer(told.partitions[0]) == (OK, 0)
