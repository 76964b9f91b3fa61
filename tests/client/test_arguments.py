"""What calls of clients are given: what Kafka's users pass is taken, and all else is refused with what is wanted."""

from __future__ import annotations

import math
import re
from collections import namedtuple
from typing import Any

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from oncelog.client import arguments as checked
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.errors import InvalidTopicException
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import IsolationLevel, TimestampType, TopicPartition

ORDERS = TopicPartition("orders", 0)
Theirs = namedtuple("Theirs", ["topic", "partition"])  # kafka-python's TopicPartition


class Confluents:
    """confluent-kafka's TopicPartition, whose offset nobody here would look at."""

    topic, partition, offset = "orders", 0, 5


class Number:
    """As numpy has them."""

    def __index__(self) -> int:
        return 3

    def __float__(self) -> float:
        return 3.0


class TestTimes:
    @pytest.mark.parametrize(("given", "seconds"), [(0, 0), (1, 1), (0.5, 0.5), (Number(), 3), (-0.5, 0), (-7, 0)])
    def test_are_seconds(self, given: Any, seconds: float) -> None:
        assert checked.seconds(given) == seconds
        assert checked.poll_ms(given) == seconds * 1000

    @pytest.mark.parametrize("given", [None, math.inf, -1, -1.0, 1e300], ids=str)
    def test_without_end_overflow_nothing(self, given: Any) -> None:
        assert checked.seconds(given) == checked.FOREVER_S
        assert checked.poll_ms(given) == checked.FOREVER_S * 1000

    @pytest.mark.parametrize("given", ["1", b"1", True, [1], {}], ids=repr)
    def test_other_types_are_refused(self, given: Any) -> None:
        with pytest.raises(TypeError, match=r"timeout is a number of seconds, or None to wait without end; not"):
            checked.seconds(given)

    def test_nan_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"timeout is a number of seconds, .* not nan"):
            checked.seconds(math.nan)

    def test_none_may_mean_the_limit_of_the_call(self) -> None:
        assert checked.timeout_s(None) is None
        assert checked.timeout_ms(None) is None
        assert checked.timeout_ms(1.5) == 1500

    @given_by(st.floats(allow_nan=False) | st.integers())
    def test_every_number_can_be_waited_for(self, number: float) -> None:
        assert 0 <= checked.seconds(number) <= checked.FOREVER_S

    def test_moments(self) -> None:
        assert checked.moment_ms(Number()) == 3
        with pytest.raises(
            TypeError, match=r"timestamp_ms is a whole number of milliseconds since 1970, not '1' \(str\)"
        ):
            checked.moment_ms("1")
        with pytest.raises(ValueError, match="0 or more milliseconds since 1970, not -1"):
            checked.moment_ms(-1)


class TestPartitions:
    @pytest.mark.parametrize("given", [ORDERS, ("orders", 0), Theirs("orders", 0)], ids=repr)
    def test_one(self, given: Any) -> None:
        found = checked.partition(given)
        assert found == ORDERS
        assert type(found) is TopicPartition
        assert checked.these_partitions((given,)) == checked.partitions(given) == [ORDERS]

    def test_several_one_by_one_or_in_a_list(self) -> None:
        other = ("orders", 1)
        for given in ((ORDERS, other), ([ORDERS, other],), ((ORDERS, other),), (iter([ORDERS, other]),)):
            assert checked.these_partitions(given) == [ORDERS, other]
        assert checked.these_partitions((frozenset([ORDERS]),)) == [ORDERS]

    def test_no_argument_is_all_and_an_empty_list_is_none(self) -> None:
        assert checked.these_or_all(()) is None
        assert checked.these_or_all(([],)) == []

    @pytest.mark.parametrize(
        "given", ["orders", ("orders", "0"), ("orders", -1), ("orders", True), ("", 0), (1, 0), ("orders",), None, 7],
        ids=repr,
    )  # fmt: skip
    def test_others_are_refused(self, given: Any) -> None:
        for ask in (checked.partition, checked.partitions, lambda one: checked.these_partitions((one,))):
            with pytest.raises(TypeError, match=r'a partition is .* such as \("orders", 0\)'):
                ask(given)

    def test_confluents_is_refused_with_what_to_write(self) -> None:
        with pytest.raises(TypeError, match=r"write \('orders', 0\)"):
            checked.partition(Confluents())


class TestOffsets:
    @pytest.mark.parametrize(
        ("given", "offset"),
        [
            (5, OffsetAndMetadata(5)),
            (Number(), OffsetAndMetadata(3)),
            (OffsetAndMetadata(5, "note", 2), OffsetAndMetadata(5, "note", 2)),
            ((5, None, None), OffsetAndMetadata(5)),  # kafka-python's, where nothing was said
        ],
        ids=["int", "index", "ours", "theirs"],
    )
    def test_of_all_kinds(self, given: Any, offset: OffsetAndMetadata) -> None:
        assert checked.offset(given) == offset

    @pytest.mark.parametrize("given", ["2", 2.0, None, True, (), ("2",), (1, 2), (1, "", "x"), (1, "", 0, 0)], ids=repr)
    def test_other_types_are_refused(self, given: Any) -> None:
        with pytest.raises(TypeError, match="offset"):
            checked.offset(given)

    @pytest.mark.parametrize(("given", "said"), [(-1, "0 or more, not -1; see seek_to_beginning"), (2**63, "at most")])
    def test_what_no_log_has_is_refused(self, given: int, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            checked.offset(given)

    def test_of_a_record_are_those_after_it(self) -> None:
        record = ConsumerRecord("orders", 0, 41, 0, TimestampType.CREATE_TIME, None, b"", (), 7)
        assert checked.offsets(record) == {ORDERS: OffsetAndMetadata(42, "", 7)}

    def test_by_partition(self) -> None:
        assert checked.offsets({("orders", 0): 5}) == {ORDERS: OffsetAndMetadata(5)}

    @pytest.mark.parametrize(
        "given", [[ORDERS], "orders", 5, Confluents()], ids=["list", "text", "number", "confluent"]
    )
    def test_others_are_refused(self, given: Any) -> None:
        with pytest.raises(
            TypeError, match=r'such as \{\("orders", 0\): 5\}.* the last record that was processed; not'
        ):
            checked.offsets(given)


class TestTopics:
    def test_names_and_patterns(self) -> None:
        pattern = re.compile("o.*")
        assert checked.topics("orders") == checked.topics(["orders"]) == {"orders"}
        assert checked.topics(pattern) is pattern
        assert checked.topics("^o.*") == checked.topics(["^o.*"]) == re.compile("^o.*")
        assert checked.topics([]) == frozenset()

    def test_none_is_refused_with_what_to_do(self) -> None:
        with pytest.raises(TypeError, match=r"not None; unsubscribe\(\) reads nothing any more"):
            checked.topics(None)

    @pytest.mark.parametrize("given", [5, b"orders", {"orders": 1}, ["orders", 5], re.compile(b"o.*")], ids=repr)
    def test_other_types_are_refused(self, given: Any) -> None:
        with pytest.raises(TypeError, match="topics"):
            checked.topics(given)

    def test_a_name_that_no_topic_can_have(self) -> None:
        with pytest.raises(InvalidTopicException, match="my topic"):
            checked.topics(["my topic"])

    def test_half_a_pattern_and_one_among_names(self) -> None:
        with pytest.raises(ValueError, match="not a regular expression"):
            checked.topics("^(")
        with pytest.raises(ValueError, match="names or one pattern"):
            checked.topics(["orders", "^o.*"])


class TestOthers:
    def test_configs_are_texts_numbers_truth_values_and_lists(self) -> None:
        given = {"retention.ms": 60000, "preallocate": True, "ratio": 0.5, "cleanup.policy": ["compact", "delete"]}
        assert checked.config_texts(given) == {
            "retention.ms": "60000",
            "preallocate": "true",
            "ratio": "0.5",
            "cleanup.policy": "compact,delete",
        }
        assert checked.config_texts(None) == {}

    @pytest.mark.parametrize("given", [[("retention.ms", 1)], {"retention.ms": None}, {1: "1"}, {"": 1}], ids=repr)
    def test_other_configs_are_refused(self, given: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="config"):
            checked.config_texts(given)

    def test_a_text_alone_is_not_taken_apart(self) -> None:
        assert checked.texts("billing", "groups") == checked.texts(["billing"], "groups") == ["billing"]
        for given in (5, [5], b"billing", None):
            with pytest.raises(TypeError, match=r"groups (is|are)"):
                checked.texts(given, "groups")

    def test_numbers(self) -> None:
        assert checked.limit(None) is None
        assert checked.limit(Number()) == 3
        for given in ("3", 1.5, True):
            with pytest.raises(TypeError, match="max_records is a whole number, not"):
                checked.limit(given)
        with pytest.raises(ValueError, match="max_records is 1 or more, not 0"):
            checked.limit(0)

    def test_isolation_levels(self) -> None:
        assert checked.isolation_level("read_committed") is IsolationLevel.READ_COMMITTED
        assert checked.isolation_level(IsolationLevel.READ_COMMITTED) is IsolationLevel.READ_COMMITTED
        with pytest.raises(ValueError, match="read_uncommitted or read_committed, not 5"):
            checked.isolation_level(5)

    def test_long_values_are_cut(self) -> None:
        assert len(checked.shown("x" * 1000)) < 100
