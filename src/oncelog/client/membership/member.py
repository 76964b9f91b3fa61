"""What members of both protocols have in common: the subscription, the user who must be alive, news, and failure."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable

from oncelog.client.consumer_errors import MaxPollExceeded
from oncelog.client.consumer_records import NO_GENERATION, NO_MEMBER, GroupMetadata
from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipCounters, MembershipSettings
from oncelog.client.membership.news import Failed, Lost, News
from oncelog.client.membership.news_box import NewsBox
from oncelog.client.membership.offset_commits import OffsetCommits
from oncelog.client.membership.topic_choice import TopicChoice, topic_choice
from oncelog.client.metadata_cache import MetadataCache
from oncelog.types import TopicPartition

WANT_PERIOD_MS = 1_000
"""How often metadata is reminded of the topics in use, and asked for those that do not exist."""
COMMIT_GRACE_MS = 5_000
"""How long partitions are kept for offset commits that were asked for while they were being given up."""

_log = logging.getLogger(__name__)


class Member:
    def __init__(
        self,
        settings: MembershipSettings,
        link: CoordinatorLink,
        commits: OffsetCommits,
        metadata: MetadataCache,
        jitter: Callable[[], float],
    ) -> None:
        self.counters = MembershipCounters()
        self._settings = settings
        self._link = link
        self._commits = commits
        self._metadata = metadata
        self._backoff = settings.new_backoff(jitter)
        self._news = NewsBox()
        self._choice: TopicChoice | None = None
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._nobody = GroupMetadata(settings.group_id, NO_GENERATION, NO_MEMBER, settings.group_instance_id)
        self._identity = self._nobody
        self._polled_ms: int | None = None
        self._is_user_away = True
        self._is_failed = False
        self._is_final_failure = False
        self._refusals = link.refusals
        self._want_at_ms = 0
        self._answers_needed = 0
        self._seen_answers = metadata.answers
        self._last_commit = 0
        self._give_up_at_ms = 0

    # --- for the consumer -------------------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupMetadata:
        return self._identity

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._assignment

    @property
    def wants_all_topics(self) -> bool:
        return self._choice is not None and self._choice.pattern is not None

    def subscribe(self, topics: Collection[str] | re.Pattern[str]) -> None:
        self._choice = topic_choice(topics, exclude_internal=self._settings.exclude_internal_topics)
        self._metadata.wants_all = self.wants_all_topics
        self._metadata.mark_stale()
        self._commits.needs_member = True
        self._is_failed = self._is_final_failure = False
        self._want_at_ms = 0
        self._answers_needed = self._metadata.answers + self.wants_all_topics

    def _unsubscribe(self) -> None:
        self._choice = None
        self._metadata.wants_all = False
        self._commits.needs_member = False

    def user_polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms
        self._is_user_away = False
        if self._is_failed and self._news.is_clear:
            self._is_failed = self._is_final_failure

    def take_news(self) -> list[News]:
        return self._news.take()

    def news_done(self, now_ms: int) -> None:
        """Commits that were asked for up to now are waited for before partitions are let go, but not forever."""
        self._news.done()
        self._last_commit = self._commits.last_number
        self._give_up_at_ms = now_ms + COMMIT_GRACE_MS

    # --- for the protocols ------------------------------------------------------------------------------------------

    @property
    def _may_join(self) -> bool:
        return self._choice is not None and not self._is_user_away and not self._is_failed

    @property
    def _topics(self) -> frozenset[str] | None:
        """What is subscribed to; None without a subscription, or while it is not known what a pattern matches."""
        if self._choice is None or self._metadata.answers < self._answers_needed:
            return None
        return self._choice.topics(self._metadata.cluster)

    def _may_let_go(self, now_ms: int) -> bool:
        """The user has given up what was to be revoked, and its offsets are committed."""
        if not self._news.is_clear:
            return False
        return now_ms >= self._give_up_at_ms or self._commits.is_settled(self._last_commit)

    def _is_user_late(self, now_ms: int) -> bool:
        if self._is_user_away or self._polled_ms is None:
            return False
        return now_ms - self._polled_ms > self._settings.max_poll_interval_ms

    def _user_late_ms(self, now_ms: int) -> int:
        """How long the user still has."""
        if self._is_user_away or self._polled_ms is None:
            return MAX_POLL_MS
        return max(0, self._polled_ms + self._settings.max_poll_interval_ms + 1 - now_ms) or MAX_POLL_MS

    def _blame_user(self) -> None:
        """Offset commits will say why they come too late."""
        self._commits.absence = MaxPollExceeded(self._settings.max_poll_interval_ms)
        _log.warning("group %s: %s", self._settings.group_id, self._commits.absence)

    def _want_topics(self, names: Callable[[], Iterable[str]], now_ms: int) -> None:
        """After each answer those that it left out (its question may be older than our wish), and all now and then."""
        metadata = self._metadata
        is_due = now_ms >= self._want_at_ms
        if is_due:
            self._want_at_ms = now_ms + WANT_PERIOD_MS
        elif metadata.answers == self._seen_answers:
            return
        self._seen_answers = metadata.answers
        for name in names():
            if is_due or name not in metadata.topic_errors:
                metadata.want(name, now_ms)

    def _lose_partitions(self, lost: frozenset[TopicPartition]) -> None:
        """Nothing is ours any more, of which the user hears of `lost`."""
        self._news.withdraw_revoking()
        self._assignment = frozenset()
        self._identity = self._nobody
        self._commits.fenced()
        if lost:
            self._news.put(Lost(lost))

    def _fail(self, error: Exception, *, final: bool = False) -> None:
        """The user hears it once, however often we meet it before the next poll."""
        if not self._is_failed or final:
            self._news.put(Failed(error))
        self._is_failed = True
        self._is_final_failure |= final

    def _take_refusal(self) -> Exception | None:
        """What the brokers said against the search for the coordinator, once."""
        if self._refusals == self._link.refusals:
            return None
        self._refusals = self._link.refusals
        return self._link.refusal
