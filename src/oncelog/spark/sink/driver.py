"""The sink on the driver's side, wired: a plan before the tasks of a batch, a commit or an abort after them.

Each call opens the journal, does its part and closes it: the processes in which Spark calls come and go, and none of
them may keep anything that matters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oncelog import clock
from oncelog.client.blocking import BrokersUnreachable, ConnectionLost
from oncelog.errors import KafkaError
from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink.attempts import TaskResult
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.checkpoint import claim, topic_offsets
from oncelog.spark.sink.journal import digest_of
from oncelog.spark.sink.journal_topic import JournalTopic
from oncelog.spark.sink.procedure import Sink
from oncelog.spark.sink.settings import SinkSettings
from oncelog.spark.sink.slot_transactions import SlotTransactions
from oncelog.spark.sink.stored_records import StoredRecords
from oncelog.spark.sink.task import TaskPlan
from oncelog.spark.sink.whole_batch import as_whole, begin_whole

logger = logging.getLogger(__name__)


def plan_batch(settings: SinkSettings) -> TaskPlan:
    if settings.topic is not None:
        Brokers(settings.client).ensure_topic(settings.topic, settings.new_topic)
    if settings.checkpoint is not None:
        claim(Checkpoint(settings.checkpoint), settings.name)
    with _opened(settings, Moment.PLANNING) as (sink, timeout_ms):
        planned = sink.plan()
    whole = begin_whole(settings, timeout_ms) if settings.is_atomic else None
    reach(Moment.PLANNED)
    return TaskPlan(planned, timeout_ms, whole)


def commit_batch(settings: SinkSettings, batch_id: int, results: Sequence[TaskResult]) -> None:
    offsets = None if settings.checkpoint is None else Checkpoint(settings.checkpoint).source_offsets(batch_id)
    digest = None if offsets is None else digest_of(offsets)
    with _opened(settings, Moment.COMMITTING) as (sink, timeout_ms):
        if settings.is_atomic:
            results = as_whole(settings, timeout_ms, results)
        sink.commit(batch_id, results, digest, clock.wall_ms)
    if settings.group_id is not None:
        _commit_group_offsets(settings, offsets or ())


def abort_batch(settings: SinkSettings, results: Sequence[TaskResult]) -> None:
    with _opened(settings, Moment.ABORTING) as (sink, _):
        sink.abort(results)


@contextmanager
def _opened(settings: SinkSettings, taken_over: Moment) -> Iterator[tuple[Sink, int]]:
    brokers = Brokers(settings.client)
    timeout_ms = brokers.transaction_timeout_ms(settings.transaction_timeout_ms)
    journal = JournalTopic(brokers, settings.name, timeout_ms, taken_over)
    try:
        journal.create()
        stored = StoredRecords(brokers, settings.name, timeout_ms)
        yield Sink(settings.name, journal, SlotTransactions(brokers), stored), timeout_ms
    finally:
        journal.close()


def _commit_group_offsets(settings: SinkSettings, source_offsets: Sequence[str]) -> None:
    """For those who watch the lag of a group: nothing depends on them, and the batch is done."""
    assert settings.group_id is not None
    offsets = {partition: offset for one in source_offsets for partition, offset in topic_offsets(one).items()}
    if not offsets:
        logger.warning("no offsets are committed for group %s: the checkpoint cannot be read", settings.group_id)
        return
    try:
        Brokers(settings.client).admin.alter_group_offsets(settings.group_id, offsets)
    except (KafkaError, ConnectionLost, BrokersUnreachable) as error:
        logger.warning("the offsets of group %s were not committed: %s", settings.group_id, error)
