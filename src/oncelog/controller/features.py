"""The features that this version writes into new metadata, and adds to older metadata that lacks them."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.controller.records import MetadataRecord, RecordType

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
BOOTSTRAP_FEATURES: Mapping[str, int] = {
    METADATA_VERSION: 30,  # Kafka 4.3-IV0: decides the versions of the records that are written
    GROUP_VERSION: 1,  # KIP-848 groups
    TRANSACTION_VERSION: 2,  # KIP-890: every transaction has an epoch of its own
}
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    GROUP_VERSION: (1, 1),
    METADATA_VERSION: (7, 30),
    TRANSACTION_VERSION: (0, 2),
}
"""The levels of each feature that this version can serve. Others that metadata may have finalized (Kafka wrote it) are
not told to clients, who would rely on them."""


def missing_features(present: Mapping[str, int]) -> list[MetadataRecord]:
    return [
        MetadataRecord(RecordType.FEATURE_LEVEL, {"name": name, "feature_level": level})
        for name, level in BOOTSTRAP_FEATURES.items()
        if name not in present
    ]
