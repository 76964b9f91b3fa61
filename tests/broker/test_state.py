"""The broker's state across crashes and disk errors: metadata decides, logs follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.broker.config import BrokerConfig, Endpoint
from oncelog.broker.state import BrokerState
from oncelog.broker.unopened_logs import MAX_RETRY_MS
from oncelog.controller.identity import WrongDataFolder
from oncelog.controller.topics import NewTopic, TopicToDelete, create_topics, delete_topics
from oncelog.errors import (
    FencedLeaderEpoch,
    InvalidConfig,
    InvalidRequest,
    KafkaStorageError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from oncelog.log.storage import FileStorage, OsFile
from oncelog.types import TimestampType
from tests.broker.handlers.conftest import NOW_MS, Asking, open_broker
from tests.controller.support import counting_ids
from tests.support.faulty_storage import FaultyStorage


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "data").iterdir() if path.is_dir()}


def error_code(broker: BrokerState, topic: str, index: int) -> int:
    try:
        broker.partition(topic, index)
    except (KafkaStorageError, UnknownTopicOrPartition) as error:
        return error.code
    return 0


def test_partitions_that_do_not_exist(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    Asking(broker).create("orders")
    assert error_code(broker, "orders", 0) == 0
    assert error_code(broker, "orders", 1) == 3
    assert error_code(broker, "nope", 0) == 3
    assert not broker.is_offline("nope", 0)


def test_names_and_ids(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    topic_id = Asking(broker).create("orders")
    assert broker.topic_id("orders") == topic_id
    assert broker.topic_name(topic_id) == "orders"
    assert broker.topic_name(UUID(int=10**9)) is None
    assert broker.topic_id("nope") is None


def test_leader_epochs(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    Asking(broker).create("orders")
    broker.check_leader_epoch("orders", 0, -1)
    broker.check_leader_epoch("orders", 0, 0)
    with pytest.raises(UnknownLeaderEpoch):
        broker.check_leader_epoch("orders", 0, 1)
    with pytest.raises(FencedLeaderEpoch):
        broker.check_leader_epoch("orders", 0, -2)


def test_a_crash_between_the_topics_record_and_its_folders(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    topics = [NewTopic("orders", 2)]
    planned = create_topics(broker.controller.state, broker.cluster, broker.config_schema, topics, broker.new_id)
    broker.controller.commit(planned, NOW_MS)  # and then the power fails
    again = open_broker(tmp_path)
    assert [error_code(again, "orders", index) for index in (0, 1)] == [0, 0]


def test_a_crash_between_a_deletion_and_its_folders(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders")
    ask.append("orders", 0, NOW_MS)
    ask.broker.controller.commit(delete_topics(ask.broker.controller.state, [TopicToDelete("orders", None)]), NOW_MS)
    again = Asking(open_broker(tmp_path))
    assert error_code(again.broker, "orders", 0) == 3
    again.create("orders")
    assert again.broker.partition("orders", 0).log_end_offset == 0, "a deleted record came back"


def test_an_old_topics_folder_is_not_the_new_ones(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders")
    ask.append("orders", 0, NOW_MS)
    state = ask.broker.controller.state
    ask.broker.controller.commit(delete_topics(state, [TopicToDelete("orders", None)]), NOW_MS)
    anew = create_topics(state, ask.broker.cluster, ask.broker.config_schema, [NewTopic("orders")], ask.broker.new_id)
    ask.broker.controller.commit(anew, NOW_MS)  # both changes are durable, neither has reached the folders
    again = open_broker(tmp_path)
    assert again.partition("orders", 0).log_end_offset == 0
    assert any(name.endswith("-delete") for name in names(tmp_path)), "it is known to be deleted, and will go"


def test_everything_readable_after_an_unclean_stop(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders")
    ask.append("orders", 0, NOW_MS, NOW_MS)
    log = open_broker(tmp_path).partition("orders", 0)
    assert (log.log_end_offset, log.high_watermark) == (2, 2)


class FullDisk(FileStorage):
    """No new folder can be made, and none renamed, while `full`."""

    full = False

    def make_directory(self, path: str) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().rename(source, target)


def open_on(storage: FileStorage, folder: Path) -> BrokerState:
    config = BrokerConfig.from_settings({"log.dirs": str(folder / "data")})
    broker = BrokerState.open(config, storage, now_ms=NOW_MS, new_id=counting_ids())
    broker.endpoint = Endpoint("broker.example", 9092)
    return broker


def test_a_topic_needs_no_space_before_its_first_record(tmp_path: Path) -> None:
    storage = FullDisk()
    ask = Asking(open_on(storage, tmp_path))
    storage.full = True
    ask.create("orders", partitions=3)
    assert not any(name.startswith("orders") for name in names(tmp_path))
    (topic,) = ask("metadata", 12, topics=None)["topics"]
    assert [partition["leader_id"] for partition in topic["partitions"]] == [1, 1, 1]
    with pytest.raises(KafkaStorageError, match="cannot create the log of orders-1"):
        ask.append("orders", 1, NOW_MS)
    assert not ask.broker.is_offline("orders", 1), "clients are to try again"
    storage.full = False
    ask.append("orders", 1, NOW_MS)
    assert [name for name in names(tmp_path) if name.startswith("orders")] == ["orders-1"]
    again = open_broker(tmp_path)
    assert [again.partition("orders", index).log_end_offset for index in range(3)] == [0, 1, 0]


def test_a_partition_that_nobody_asks_for_costs_nothing() -> None:
    storage = FaultyStorage()
    config = BrokerConfig.from_settings({"log.dirs": "data"})
    ask = Asking(BrokerState.open(config, storage, now_ms=NOW_MS, new_id=counting_ids()))
    ask.create("warm")
    before = storage.operations
    ask.create("one")
    of_one = storage.operations - before
    before = storage.operations
    ask.create("many", partitions=1_000)
    assert storage.operations - before == of_one, "the disk hears of the topic, not of its partitions"
    assert len(ask.broker.logs.logs) == 0


class Clock:
    """The steady time of a server."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def later(self, delay_ms: int, step: object) -> Callable[[], None]:
        raise NotImplementedError


class FewDescriptors(FileStorage):
    """No file of these logs can be opened while they are named here."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: tuple[str, ...] = ()

    def open(self, path: str, create: bool = False) -> OsFile:
        if any(f"/{name}/" in path for name in self.closed):
            raise OSError(24, "Too many open files")
        return super().open(path, create)


def test_a_log_that_could_not_be_opened_at_the_start_is_opened_later(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders", partitions=2)
    ask.append("orders", 1, NOW_MS)
    storage = FewDescriptors()
    storage.closed = ("orders-1",)
    broker = open_on(storage, tmp_path)
    broker.timers = clock = Clock()
    assert [error_code(broker, "orders", index) for index in range(2)] == [0, 56]
    for _ in range(3):
        clock.time_ms += MAX_RETRY_MS
        reopening = broker.next_reopening(NOW_MS)
        assert reopening is not None
        reopening.run()
        broker.log_reopened(reopening, None)
        assert error_code(broker, "orders", 1) == 56
    storage.closed = ()
    clock.time_ms += MAX_RETRY_MS
    reopening = broker.next_reopening(NOW_MS)
    assert reopening is not None
    reopening.run()
    broker.log_reopened(reopening, None)
    log = broker.partition("orders", 1)
    assert (log.log_end_offset, log.high_watermark) == (1, 1)
    assert broker.next_reopening(NOW_MS) is None


def test_a_topic_whose_folder_cannot_be_removed_is_gone_all_the_same(tmp_path: Path) -> None:
    storage = FullDisk()
    ask = Asking(open_on(storage, tmp_path))
    ask.create("orders")
    ask.append("orders", 0, NOW_MS)
    storage.full = True
    assert ask("delete_topics", 6, topics=[{"name": "orders"}])["responses"][0]["error_code"] == 0
    assert error_code(ask.broker, "orders", 0) == 3
    ask.create("orders")
    assert ask.broker.partition("orders", 0).log_end_offset == 0
    with pytest.raises(KafkaStorageError):
        ask.append("orders", 0, NOW_MS)  # the old folder still stands in the way
    storage.full = False
    ask.append("orders", 0, NOW_MS)
    assert open_broker(tmp_path).partition("orders", 0).log_end_offset == 1


def test_changes_that_cannot_be_made_durable_are_refused_item_by_item(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders")
    ask.broker.controller._log._log.offline = True
    topics = [{"name": "x", "num_partitions": 1, "replication_factor": 1}, {"name": "bad name"}]
    created = ask("create_topics", 7, topics=topics)["topics"]
    assert [topic["error_code"] for topic in created] == [56, 17]
    assert ask("metadata", 12, topics=[{"name": "y"}])["topics"][0]["error_code"] == 56
    deleted = ask("delete_topics", 6, topics=[{"name": "orders"}, {"name": "nope"}])["responses"]
    assert [topic["error_code"] for topic in deleted] == [56, 3]
    more = ask("create_partitions", 3, topics=[{"name": "orders", "count": 2, "assignments": None}])["results"]
    assert more[0]["error_code"] == 56
    for api in ("alter_configs", "incremental_alter_configs"):
        resource = {"resource_type": 2, "resource_name": "orders", "configs": [{"name": "retention.ms", "value": "5"}]}
        assert ask(api, 1, resources=[resource])["responses"][0]["error_code"] == 56
    assert ask("init_producer_id", 4, transactional_id=None, transaction_timeout_ms=1)["error_code"] == 56
    assert error_code(ask.broker, "orders", 0) == 0, "what exists is still served"


def test_a_folder_of_another_node(tmp_path: Path) -> None:
    open_broker(tmp_path, node_id="1")
    with pytest.raises(WrongDataFolder, match="belongs to node 1, and this is node 2"):
        open_broker(tmp_path, node_id="2")


def test_the_cluster_keeps_its_id(tmp_path: Path) -> None:
    assert open_broker(tmp_path).cluster_id == open_broker(tmp_path).cluster_id


def test_producer_ids_never_repeat_across_crashes(tmp_path: Path) -> None:
    seen = [open_broker(tmp_path).controller.next_producer_id(NOW_MS) for _ in range(4)]
    assert len(set(seen)) == 4


def test_what_a_batch_must_fulfil(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path, socket_request_max_bytes="5000"))
    ask.create("orders", cleanup_policy="compact", max_message_bytes="7", message_timestamp_type="LogAppendTime")
    rules = ask.broker.batch_rules(ask.broker.partition("orders", 0).config, NOW_MS)
    assert (rules.max_message_bytes, rules.max_decompressed_bytes, rules.now_ms) == (7, 5000, NOW_MS)
    assert rules.require_keys
    assert rules.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_the_rules_that_are_kept_are_those_of_the_topic_and_the_moment(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders", max_message_bytes="7")
    ask.create("bills", max_message_bytes="8")
    orders, bills = (ask.broker.partition(name, 0).config for name in ("orders", "bills"))
    rules = [ask.broker.batch_rules(orders, NOW_MS) for _ in range(2)]
    assert rules[0] is rules[1]
    assert ask.broker.batch_rules(orders, NOW_MS + 1).now_ms == NOW_MS + 1
    assert ask.broker.batch_rules(bills, NOW_MS + 1).max_message_bytes == 8
    assert ask.broker.batch_rules(orders, NOW_MS + 1).max_message_bytes == 7


def test_two_broker_configs_of_one_request_must_fit_each_other(tmp_path: Path) -> None:
    """Each fits what is in force; both together would keep the broker from starting."""
    ask = Asking(open_broker(tmp_path))
    lags = {"": ("log.cleaner.max.compaction.lag.ms", "500"), "own": ("log.cleaner.min.compaction.lag.ms", "1000")}
    resources = [
        {
            "resource_type": 4,
            "resource_name": str(ask.broker.node_id) if whose else "",
            "configs": [{"name": name, "config_operation": 0, "value": value}],
        }
        for whose, (name, value) in lags.items()
    ]
    for asked in (resources, resources[::-1]):
        answered = ask("incremental_alter_configs", 1, resources=asked, validate_only=True)["responses"]
        assert [each["error_code"] for each in answered] == [0, InvalidRequest.code]
    ask("incremental_alter_configs", 1, resources=resources, validate_only=False)
    open_broker(tmp_path)


def test_a_default_that_does_not_fit_a_topics_own_setting_is_refused_and_never_prevents_a_start(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    ask.create("orders", min_compaction_lag_ms="1000")
    setting = {"name": "log.cleaner.max.compaction.lag.ms", "config_operation": 0, "value": "500"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [setting]}
    (answer,) = ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)["responses"]
    assert answer["error_code"] == InvalidConfig.code
    ask.broker.stop(NOW_MS)
    config = open_broker(tmp_path, log_cleaner_max_compaction_lag_ms="500").log_config("orders")
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (1000, 1000)
