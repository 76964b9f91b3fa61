"""The features that this version writes into new metadata, and adds to older metadata that lacks them."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.controller.records import MetadataRecord, RecordType

METADATA_VERSION = "metadata.version"
BOOTSTRAP_FEATURES: Mapping[str, int] = {
    METADATA_VERSION: 30,  # Kafka 4.3-IV0: decides the versions of the records that are written
}


def missing_features(present: Mapping[str, int]) -> list[MetadataRecord]:
    return [
        MetadataRecord(RecordType.FEATURE_LEVEL, {"name": name, "feature_level": level})
        for name, level in BOOTSTRAP_FEATURES.items()
        if name not in present
    ]
