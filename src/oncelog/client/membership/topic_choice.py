"""The topics that a consumer subscribes to: by name, or those whose whole name matches a pattern."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from oncelog.client.metadata import ClusterMetadata


class TopicChoice(Protocol):
    @property
    def pattern(self) -> re.Pattern[str] | None: ...

    def topics(self, cluster: ClusterMetadata | None) -> frozenset[str] | None:
        """None while that is not known."""


class NamedTopics:
    pattern = None

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def topics(self, cluster: ClusterMetadata | None) -> frozenset[str] | None:
        return self._names


class MatchingTopics:
    def __init__(self, pattern: re.Pattern[str], *, exclude_internal: bool) -> None:
        self.pattern = pattern
        self._exclude_internal = exclude_internal
        self._cluster: ClusterMetadata | None = None
        self._matching: frozenset[str] | None = None

    def topics(self, cluster: ClusterMetadata | None) -> frozenset[str] | None:
        """Asked often, and answered anew only for a cluster that is new."""
        if cluster is not self._cluster:
            self._cluster = cluster
            self._matching = None if cluster is None else self._matches(cluster)
        return self._matching

    def _matches(self, cluster: ClusterMetadata) -> frozenset[str]:
        return frozenset(
            topic.name
            for topic in cluster.topics.values()
            if self.pattern.fullmatch(topic.name)
            and not (topic.is_internal and self._exclude_internal)
            and not topic.error_code
        )


def topic_choice(topics: Collection[str] | re.Pattern[str], *, exclude_internal: bool) -> TopicChoice:
    if isinstance(topics, re.Pattern):
        return MatchingTopics(topics, exclude_internal=exclude_internal)
    return NamedTopics(topics)
