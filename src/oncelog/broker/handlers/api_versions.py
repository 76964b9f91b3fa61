"""ApiVersions (key 18), versions 0-4.

Versions: 3 is flexible and adds the client's software name and the features; 4 tells of features whose range starts at
0, too. `oncelog.transaction.version` lowers the level of transactions that clients are told, and with it the protocol
that they use.

A version that is not served is answered in the schema of version 0, with UNSUPPORTED_VERSION and the range of this API
alone, so that a newer client can ask again. The response header never has tagged fields.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncelog.broker.config.transaction_keys import TRANSACTION_VERSION as HIGHEST_TOLD
from oncelog.broker.fetch_pace import FETCHES_AHEAD, FetchPace
from oncelog.broker.request import Request
from oncelog.controller.features import SUPPORTED_FEATURES, TRANSACTION_VERSION
from oncelog.errors import InvalidRequest, UnsupportedVersion
from oncelog.wire.api import SUPPORTED, ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.API_VERSIONS
FALLBACK_VERSION = 0
FIRST_VERSION_WITH_CLIENT_NAME = 3
FIRST_VERSION_WITH_LEVEL_0 = 4
SOFTWARE_FIELDS = ("client_software_name", "client_software_version")
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: BrokerState, request: Request) -> Message:
    if request.version >= FIRST_VERSION_WITH_CLIENT_NAME and not _names_its_software(request.body):
        return {"error_code": InvalidRequest.code}
    if any(FETCHES_AHEAD in request.body.get(field, "") for field in SOFTWARE_FIELDS):
        request.peer.pace = FetchPace()
    finalized = _finalized(broker)
    lowest_told = 0 if request.version >= FIRST_VERSION_WITH_LEVEL_0 else 1
    return {
        "api_keys": _ranges(),
        "supported_features": [
            {"name": name, "min_version": lowest, "max_version": highest}
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if lowest >= lowest_told
        ],
        "finalized_features_epoch": broker.controller.metadata_offset,
        "finalized_features": [
            {"name": name, "max_version_level": finalized[name], "min_version_level": finalized[name]}
            for name in SUPPORTED_FEATURES
            if name in finalized
        ],
    }


def _finalized(broker: BrokerState) -> dict[str, int]:
    """Level 0 is told by saying nothing, as Kafka does."""
    levels = dict(broker.controller.state.features)
    told = min(levels.get(TRANSACTION_VERSION, 0), int(broker.config.values[HIGHEST_TOLD]))  # type: ignore[arg-type]
    levels[TRANSACTION_VERSION] = told
    return {name: level for name, level in levels.items() if level}


def unsupported_version() -> Message:
    served = SUPPORTED[API_KEY]
    return {
        "error_code": UnsupportedVersion.code,
        "api_keys": [{"api_key": API_KEY, "min_version": served.lowest, "max_version": served.highest}],
    }


def _ranges() -> list[Message]:
    return [
        {"api_key": key, "min_version": versions.lowest, "max_version": versions.highest}
        for key, versions in SUPPORTED.items()
    ]


def _names_its_software(body: Message) -> bool:
    return all(SOFTWARE_NAME.fullmatch(body[field]) for field in SOFTWARE_FIELDS)
