"""The partitions whose records a broker reads itself: those of the coordinators, which must understand all of them.

Owns what follows for them from a batch that cannot be understood. Whether it can be is said by what loads them.
"""

from __future__ import annotations

from typing import Final

from oncelog.broker.groups import loading as groups
from oncelog.broker.transactions import loading as transactions
from oncelog.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from oncelog.log.survey import BatchReader
from oncelog.types import TopicPartition

READERS: Final = {
    OFFSETS_TOPIC: BatchReader(
        groups.check_batch,
        "the coordinator of this partition is not available: its groups cannot commit, join or ask for offsets",
        "What only they told of groups is gone: where no older commit is left, a group begins as by auto.offset.reset",
    ),
    TRANSACTIONS_TOPIC: BatchReader(
        transactions.check_batch,
        "the coordinator of this partition is not available: its transactional ids cannot write",
        "What only they told of transactions is gone: one that was open there stays undecided, and read_committed "
        "readers wait at it, until its producer ends another one in the same partition",
    ),
}


def reader_of(topic_partition: TopicPartition) -> BatchReader | None:
    return READERS.get(topic_partition.topic)
