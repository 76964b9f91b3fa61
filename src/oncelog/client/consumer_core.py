"""The consumer without I/O: one network under fetching, group membership and offset commits.

A driver calls `poll` when something may be due and `handle` for each event of the network. All state here belongs to
the driver's thread, except what is made to be shared: the inbox (fetched data), `outbox` (what the user must hear),
`arrivals`, `assignment`, `polls` and `in_hand`. Everything a user asks for comes in as a command (`submit`) and
runs here, in order.

The user hears of the group in steps: news goes out, the user's callbacks run, `heard` comes back. In between nobody
else gets the partitions that are being revoked, new ones are not positioned, so that a callback may seek, and what
happens in the group meanwhile waits. What was revoked is not read any more once that was heard, whatever the group
still waits for; what was lost is not read from the moment on in which it is known.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from oncelog.client.absent_partitions import AbsentPartitions
from oncelog.client.cluster import Cluster
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_errors import CommitFailed, ConsumerClosed
from oncelog.client.consumer_records import NO_GENERATION, GroupMetadata, OffsetAndMetadata
from oncelog.client.driven import MAX_POLL_MS
from oncelog.client.fetch.fetcher import Fetcher
from oncelog.client.fetch.inbox import Inbox
from oncelog.client.fetch.lookups import Survey
from oncelog.client.fetch.partitions import PartitionState, Stage
from oncelog.client.membership.assignors.catalogue import assignors_named
from oncelog.client.membership.classic import ClassicMembership
from oncelog.client.membership.coordinator_link import GROUP_KEY, CoordinatorLink
from oncelog.client.membership.kip848 import Kip848Membership
from oncelog.client.membership.membership import Membership, MembershipSettings
from oncelog.client.membership.news import Assigned, Lost, Revoking
from oncelog.client.membership.news import News as GroupNews
from oncelog.client.membership.offset_commits import OffsetCommits, Withdraw
from oncelog.client.membership.topic_choice import topic_choice
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Event
from oncelog.client.topic_questions import TopicQuestion, TopicQuestions
from oncelog.errors import UnknownTopicOrPartition
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey

_log = logging.getLogger(__name__)

LEAVING_MS = 2_000
"""How long a consumer that is closed waits for the answer to its LeaveGroup, and for the chance to send it: a group
that does not hear of it gives its partitions away when its session ends."""
CLOSE_PATIENCE_MS = 3_000
"""How long a close waits for offset commits before it says so."""

Command = Callable[[int], None]
Done = Callable[[Any], None]
"""Takes the result, or the exception that there is instead."""
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Subscription = Collection[str] | re.Pattern[str]


class Trouble(NamedTuple):
    """What the next `poll()` raises."""

    error: Exception


OnCommit = Callable[[Offsets, "Exception | None"], Any]


def _settle_nothing(error: Exception | None) -> None:
    """Nobody answers for what was committed."""


class CommitEnded(NamedTuple):
    """An asynchronous offset commit has its answer, and the user wants to hear it."""

    offsets: Offsets
    error: Exception | None
    on_commit: OnCommit | None
    settle: Callable[[Exception | None], None] = _settle_nothing
    """For the user's side to know what has to be committed again. May be called more than once."""


UserNews = GroupNews | Trouble | CommitEnded


class ConsumerCore:
    def __init__(
        self,
        config: ConsumerConfig,
        network: Network,
        inbox: Inbox,
        *,
        jitter: Callable[[], float],
        new_id: Callable[[], str],
        wall_ms: Callable[[], int],
        on_news: Callable[[], None],
    ) -> None:
        self.network = network
        self.outbox: deque[UserNews] = deque()
        """What the user must hear, in order: at most one step of the group, each trouble once, and the answers that
        the user asked for."""
        self.arrivals = 0
        """Grows with everything that a waiting user may want to look at."""
        self.assignment: frozenset[TopicPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        """Of the assignment."""
        self.polls = 0
        """How often the user has shown that it reads. Counted by the calls."""
        self.in_hand: ConsumerRecord | None = None
        """While the user iterates: the record that it is busy with. Set by the shell; another one is as good as a
        `poll()`."""
        self.fatal: Exception | None = None
        """Why nothing works any more."""
        self.metadata = MetadataCache(
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_age_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            may_create_topics=config.allow_auto_create_topics,
        )
        self._config = config
        self._on_news = on_news
        self._commands: deque[Command] = deque()
        self._cluster = Cluster(network, self.metadata, config.bootstrap_servers)
        self.fetcher = Fetcher(config, network, self.metadata, inbox, jitter=jitter, wall_ms=wall_ms)
        self._topic_questions = TopicQuestions(network, config.retry_backoff_ms)
        self.membership: Membership | None = None
        self._link: CoordinatorLink | None = None
        self._commits: OffsetCommits | None = None
        if config.group_id is not None:
            self._join_rooms(config, jitter, new_id)
        self._subscribed: Subscription | None = None
        self._unheard = 0
        """How much of the group's news the user has not finished with."""
        self._awaiting_offsets: set[TopicPartition] = set()
        self._needed_now: set[TopicPartition] = set()
        """Whose position a callback of the user's waits for."""
        self.missing_topics: frozenset[str] = frozenset()
        """Those to be read that do not exist, as brokers last said. For any thread."""
        self.matches_nothing = False
        """What is subscribed to is a pattern, and brokers last said of no topic that fits. For any thread."""
        self._told_missing: frozenset[str] = frozenset()
        self._absent = AbsentPartitions(config.client_id)
        self._refused_in: int | None = None
        """The poll in which the group would not tell committed offsets."""
        self._user_seen: tuple[int, object] = (0, None)
        self._assigned_in: int | None = None
        """The poll after which the user assigned partitions: it may seek before the next."""
        self._close_at_ms: int | None = None
        self._closing: tuple[int, int] | None = None
        """When a close that waits says for what, and until when it waits."""
        self._leave_by_ms: int | None = None
        self._is_finished = False

    def _join_rooms(self, config: ConsumerConfig, jitter: Callable[[], float], new_id: Callable[[], str]) -> None:
        settings = membership_settings(config)
        link = self._link = CoordinatorLink(GROUP_KEY, settings.group_id, self.network, settings.new_backoff(jitter))
        commits = self._commits = OffsetCommits(settings, link, self.metadata, jitter)
        if config.uses_kip848:
            self.membership = Kip848Membership(settings, link, commits, self.metadata, jitter, new_id)
        else:
            self.membership = ClassicMembership(settings, link, commits, self.metadata, jitter)

    # --- from any thread --------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> None:
        """Run the command in the core's thread, after those that came before. The caller wakes the driver."""
        self._commands.append(command)

    # --- what a driver calls ----------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    @property
    def is_connected(self) -> bool:
        """A broker is there to be asked. For any thread."""
        return self._cluster.is_connected

    @property
    def connected_to(self) -> list[str]:
        """The addresses of the brokers that are there to be asked. For any thread."""
        return self._cluster.connected_to

    def poll(self, now_ms: int) -> int:
        while self._commands:
            self._commands.popleft()(now_ms)
        self._want_topics(now_ms)
        self._cluster.refresh(now_ms)
        wait_ms = MAX_POLL_MS
        if self.membership is not None:
            wait_ms = min(wait_ms, self._poll_group(self.membership, now_ms))
        self._find_positions(now_ms)
        if self._commits is not None:
            wait_ms = min(wait_ms, self._commits.poll(now_ms))
        wait_ms = min(wait_ms, self.fetcher.poll(now_ms), self._topic_questions.poll(now_ms))
        for error in self.fetcher.take_errors():
            self.tell(Trouble(error))
        if self._closing is not None:
            wait_ms = min(wait_ms, self._say_what_close_waits_for(*self._closing, now_ms))
        if self._close_at_ms is not None:
            wait_ms = min(wait_ms, self._close_if_done(self._close_at_ms, now_ms))
        due_ms = self._cluster.due_ms()
        if due_ms is not None:
            wait_ms = min(wait_ms, due_ms - now_ms)
        return max(0, wait_ms)

    def handle(self, event: Event, now_ms: int) -> None:
        if event.tag == ApiKey.METADATA:
            if self._cluster.arrived(event, now_ms) is not None:
                self._notice_missing()
                self._absent.learn(self.metadata.cluster, self.assignment)
                self._notice_no_match()
        elif self.fetcher.handle(event, now_ms) or self._topic_questions.handle(event, now_ms):
            pass
        elif self._link is not None:
            self._link.handle(event, now_ms)
        self._arrived()

    def failed(self, error: BaseException) -> None:
        """We have a bug: everybody who waits must know."""
        self.fatal = ConsumerClosed(f"the consumer broke and stopped: {error!r}")
        self.fatal.__cause__ = error
        self._is_finished = True
        self._arrived()

    # --- topics -----------------------------------------------------------------------------------------------------

    def _want_topics(self, now_ms: int) -> None:
        """Of what we read; the membership asks about what it may come to read."""
        for topic in self._topics:
            self.metadata.want(topic, now_ms)

    def describe_topics(self, topics: Collection[str] | None, done: Done) -> TopicQuestion:
        """Of these topics, or of all, what any broker knows; creates none."""
        return self._topic_questions.ask(topics, done)

    def _notice_missing(self) -> None:
        """A topic that does not exist may be a mistake, and is told of once. Where brokers may create it, they are
        given the time until the next answer."""
        named = self._topics
        if self._subscribed is not None:
            named = frozenset() if isinstance(self._subscribed, re.Pattern) else frozenset(self._subscribed)
        errors = self.metadata.topic_errors
        missing = frozenset(name for name in named if errors.get(name) == UnknownTopicOrPartition.code)
        is_patient = self._config.allow_auto_create_topics
        news = missing & self.missing_topics if is_patient else missing
        for name in sorted(news - self._told_missing):
            _log.warning(
                "%s: topic %r does not exist: nothing is read from it until it is created, such as with `oncelog topics"
                " create %s`%s",
                self._config.client_id,
                name,
                name,
                "" if is_patient else "; reading creates no topic, unless allow.auto.create.topics is true",
            )
        self._told_missing = news | (self._told_missing & missing)
        self.missing_topics = missing

    @property
    def missing_partitions(self) -> dict[TopicPartition, str]:
        """Those to be read that their topics do not have, and what is said of each. For any thread."""
        return self._absent.missing

    def _notice_no_match(self) -> None:
        """The same of a pattern that matches no topic at all."""
        pattern, was_told = self._subscribed, self.matches_nothing
        if not isinstance(pattern, re.Pattern) or not self.metadata.knows_all:
            self.matches_nothing = False
            return
        choice = topic_choice(pattern, exclude_internal=self._config.exclude_internal_topics)
        self.matches_nothing = choice.topics(self.metadata.cluster) == frozenset()
        if self.matches_nothing and not was_told:
            _log.warning(
                "%s: no topic matches the pattern %r: nothing is read until there is one",
                self._config.client_id,
                pattern.pattern,
            )

    # --- what is read -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Subscription, now_ms: int) -> None:
        assert self.membership is not None
        self._subscribed = topics
        self.matches_nothing = False
        self.membership.subscribe(topics)

    def unsubscribe(self, now_ms: int) -> None:
        """Own nothing any more. In a group, the user hears what is revoked first."""
        self.metadata.wants_all = self.matches_nothing = False
        if self._subscribed is None or self.membership is None:
            self._own(())
            return
        self._subscribed = ()
        self.membership.leave(now_ms, "the consumer unsubscribed")
        self._take_group_news(self.membership)

    def assign(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Own these partitions, whoever else reads them."""
        self._subscribed = None
        self._assigned_in = self.polls
        self._needed_now.clear()
        self._own(partitions)

    def _own(self, partitions: Iterable[TopicPartition]) -> None:
        self.assignment = frozenset(partitions)
        self._topics = frozenset(partition.topic for partition in self.assignment)
        self.fetcher.assign(self.assignment)

    # --- the group --------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupMetadata:
        """Who we are in the group; a reader that assigns for itself is nobody in particular."""
        assert self._config.group_id is not None
        if self._subscribed is None or self.membership is None:
            return GroupMetadata(self._config.group_id)
        return self.membership.identity

    @property
    def has_lost_place(self) -> bool:
        """We are no member of the group: it has expelled us, or we were late, or have not joined yet."""
        return self.identity.generation_id == NO_GENERATION

    @property
    def absence(self) -> CommitFailed | None:
        """Why we have lost our place, where more is known about it."""
        return None if self._commits is None else self._commits.absence

    def heard(self, news: GroupNews, now_ms: int) -> None:
        """The user has heard this of the group's news, and acted on it."""
        assert self.membership is not None
        if isinstance(news, Revoking):
            self._own(self.assignment - news.partitions)
        self._unheard -= 1
        if not self._unheard:
            self._needed_now.clear()
            self.membership.news_done(now_ms)
            self._take_group_news(self.membership)

    def _poll_group(self, membership: Membership, now_ms: int) -> int:
        assert self._link is not None
        self._link.look(now_ms)
        sign = (self.polls, self.in_hand)
        if self._user_seen[0] != sign[0] or self._user_seen[1] is not sign[1]:
            self._user_seen = sign
            membership.user_polled(now_ms)
        wait_ms = membership.poll(now_ms)
        self._take_group_news(membership)
        return wait_ms

    def _take_group_news(self, membership: Membership) -> None:
        if self._unheard:
            return
        news = membership.take_news()
        for one in news:
            if isinstance(one, Lost):
                self._own(self.assignment - one.partitions)
            elif isinstance(one, Assigned):
                self._own(one.partitions)
        self._unheard = len(news)
        self.tell(*news)

    # --- positions --------------------------------------------------------------------------------------------------

    def _find_positions(self, now_ms: int) -> None:
        """Where reading begins: at the group's committed offset, else by `auto.offset.reset`."""
        lost = [state.partition for state in self.fetcher.unpositioned()]
        if self._unheard or self._assigned_in == self.polls:
            lost = [partition for partition in lost if partition in self._needed_now]
        if self._commits is None:
            for partition in lost:
                self.fetcher.reset(partition)
            return
        asked = [partition for partition in lost if partition not in self._awaiting_offsets]
        if asked and self._refused_in != self.polls:
            self._awaiting_offsets.update(asked)
            self._commits.fetch(asked, now_ms, lambda found: self._found_offsets(asked, found))

    def _found_offsets(
        self, asked: list[TopicPartition], found: Mapping[TopicPartition, OffsetAndMetadata | None] | Exception
    ) -> None:
        self._awaiting_offsets.difference_update(asked)
        if isinstance(found, Exception):
            self._refused_in = self.polls  # asked again when the user, who hears of it, polls again
            self.tell(Trouble(found))
            return
        self._refused_in = None
        still_lost = {state.partition for state in self.fetcher.unpositioned()}  # a seek may have come first
        for partition in still_lost.intersection(asked):
            committed = found.get(partition)
            if committed is None:
                self.fetcher.reset(partition)
            else:
                self.fetcher.seek(partition, committed.offset, committed.leader_epoch)

    def need_position(self, partition: TopicPartition) -> None:
        """The user wants to know where reading begins, and will not seek first: not even in a callback."""
        self._needed_now.add(partition)
        self._refused_in = None

    def list_offsets(self, specs: Mapping[TopicPartition, int], done: Done) -> Survey:
        return self.fetcher.list_offsets(specs, done)

    def why_no_position(self, state: PartitionState, now_ms: int) -> str:
        """What is known of a position that is not. For any thread."""
        return (
            self.network.why_unreachable()
            or (self.why_no_coordinator if state.stage is Stage.UNPOSITIONED else None)
            or self.fetcher.why_unanswered([state.partition])
            or self.network.why_silent(now_ms)
            or "no broker has told it yet; give the call more time"
        )

    @property
    def why_no_coordinator(self) -> str | None:
        """Why the group does not tell, or take, offsets; None if nothing is known. For any thread."""
        return None if self._commits is None else self._commits.why_waiting

    # --- offset commits ---------------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Offsets,
        now_ms: int,
        done: Callable[[Exception | None], None],
        *,
        retry: bool,
        timeout_ms: int | None = None,
    ) -> Withdraw:
        assert self._commits is not None
        return self._commits.commit(offsets, self.identity, now_ms, done, retry=retry, timeout_ms=timeout_ms)

    def committed(
        self, partitions: Collection[TopicPartition], now_ms: int, done: Done, timeout_ms: int | None
    ) -> None:
        assert self._commits is not None
        self._commits.fetch(partitions, now_ms, done, timeout_ms=timeout_ms)

    # --- what the user hears ----------------------------------------------------------------------------------------

    def tell(self, *news: UserNews) -> None:
        if news:
            self.outbox.extend(news)  # at once: the user must not hear half of it
            self._arrived()

    def _arrived(self) -> None:
        self.arrivals += 1
        self._on_news()

    # --- the end ----------------------------------------------------------------------------------------------------

    def begin_close(self, deadline_ms: int, now_ms: int) -> None:
        """The user closes: what it waits for from now on, it waits for until then at most."""
        self._closing = now_ms + CLOSE_PATIENCE_MS, deadline_ms

    def _say_what_close_waits_for(self, say_at_ms: int, deadline_ms: int, now_ms: int) -> int:
        """Returns how long until there may be something to say."""
        if now_ms < say_at_ms:
            return say_at_ms - now_ms
        self._closing = None
        if self._commits is not None and not self._commits.is_idle:
            why = self.network.why_silent(now_ms) or self.why_no_coordinator or "its group has not answered yet"
            _log.warning(
                "%s: close() waits for the last offset commit: %s. It waits for up to %.0f s more; records whose"
                " offsets are not committed by then are read again",
                self._config.client_id,
                why,
                (deadline_ms - now_ms) / 1000,
            )
        return MAX_POLL_MS

    def close(self, deadline_ms: int) -> None:
        """End when all offset commits have an answer, or at the deadline. That the group hears of our leaving is a
        courtesy, for which there are `LEAVING_MS`; one that cannot be told now is left without a word."""
        self._close_at_ms = deadline_ms

    def _close_if_done(self, deadline_ms: int, now_ms: int) -> int:
        """Returns how long to wait if there is something to wait for."""
        is_committing = self._commits is not None and not self._commits.is_idle
        if is_committing:
            self._leave_by_ms = None  # the courtesy has its time of its own
        leave_by_ms = self._waits_to_leave_until_ms(deadline_ms, now_ms)
        if now_ms < deadline_ms and (is_committing or now_ms < leave_by_ms):
            return (deadline_ms if is_committing else leave_by_ms) - now_ms
        if self._commits is not None:
            self._commits.give_up()
        if self.membership is not None and self._link is not None and not self.membership.is_gone:
            why = self._link.why_silent or self.network.why_silent(now_ms) or "it is rebalancing"
            _log.info("group %s was not told that this consumer leaves: %s", self._config.group_id, why)
        self.network.close()
        self.fatal = self.fatal or ConsumerClosed("the consumer is closed; make a new one to read more")
        self._is_finished = True
        self._arrived()
        return 0

    def _waits_to_leave_until_ms(self, deadline_ms: int, now_ms: int) -> int:
        """Until when to try to tell the group that we leave; 0 if there is no need."""
        if self.membership is None or self._link is None or self.membership.is_gone:
            return 0
        if self._leave_by_ms is None:
            self._leave_by_ms = min(deadline_ms, now_ms + LEAVING_MS)
        hopeless_ms = self._link.hopeless_ms()
        return self._leave_by_ms if hopeless_ms is None else min(self._leave_by_ms, hopeless_ms)


def membership_settings(config: ConsumerConfig) -> MembershipSettings:
    assert config.group_id is not None
    return MembershipSettings(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        client_rack=config.client_rack,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        default_api_timeout_ms=config.default_api_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        assignors=() if config.uses_kip848 else assignors_named(config.partition_assignment_strategy),
        group_remote_assignor=config.group_remote_assignor,
        exclude_internal_topics=config.exclude_internal_topics,
        require_stable=config.reads_committed,
    )
