"""Administration of a cluster: `oncelog.admin.Admin` and the values it speaks in."""

from __future__ import annotations

from oncelog.admin.admin import ALL_RECORDS, BROKER_DEFAULT, Admin
from oncelog.admin.values import (
    ANY_NAME,
    ClientQuota,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    GroupMember,
    OffsetSpec,
    ProducerState,
    ResourceType,
    TopicDescription,
)
from oncelog.client.leaders import ListedOffset

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
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "ListedOffset",
    "OffsetSpec",
    "ProducerState",
    "ResourceType",
    "TopicDescription",
]
