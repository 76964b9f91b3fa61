"""Partitions that are to be read and that their topics do not have: told of once each. A topic may grow, so they are
waited for."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from oncelog.client.fetch.lookups import ABSENT_AFTER
from oncelog.client.metadata import ClusterMetadata
from oncelog.types import TopicPartition

_log = logging.getLogger(__name__)


class AbsentPartitions:
    def __init__(self, client_id: str) -> None:
        self.missing: dict[TopicPartition, str] = {}
        """What is said of each. For any thread."""
        self._client_id = client_id
        self._times: dict[TopicPartition, int] = {}
        """In how many answers in a row: a broker that lags behind the others is not believed."""

    def learn(self, cluster: ClusterMetadata | None, wanted: Iterable[TopicPartition]) -> None:
        """Brokers have told of topics."""
        objections = {} if cluster is None else {one: cluster.objection_to(*one) for one in wanted}
        self._times = {one: self._times.get(one, 0) + 1 for one, why in objections.items() if why is not None}
        missing = {one: objections[one] or "" for one, times in self._times.items() if times >= ABSENT_AFTER}
        for one in sorted(missing.keys() - self.missing.keys()):
            _log.warning("%s: %s: nothing is read from it until there is", self._client_id, missing[one])
        self.missing = missing
