"""Administration of a cluster: `oncelog.admin.Admin` and the values it speaks in."""

from __future__ import annotations

from oncelog.admin.admin import ALL_RECORDS, BROKER_DEFAULT, Admin
from oncelog.admin.ending import Ended, EndedOtherwise, NothingToEnd, OutcomeForgotten
from oncelog.admin.lag import Lag
from oncelog.admin.values import (
    ANY_NAME,
    ClientQuota,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    FencedProducer,
    GroupDescription,
    GroupListing,
    GroupMember,
    HangingTransaction,
    OffsetSpec,
    ProducerState,
    ResourceType,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from oncelog.client.leaders import ListedOffset
from oncelog.client.transaction.prepared import PreparedTransaction

__all__ = [
    "ALL_RECORDS",
    "ANY_NAME",
    "BROKER_DEFAULT",
    "Admin",
    "ClientQuota",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigSource",
    "CreatedTopic",
    "Ended",
    "EndedOtherwise",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "Lag",
    "ListedOffset",
    "NothingToEnd",
    "OffsetSpec",
    "OutcomeForgotten",
    "PreparedTransaction",
    "ProducerState",
    "ResourceType",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
