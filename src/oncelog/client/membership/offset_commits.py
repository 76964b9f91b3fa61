"""Offsets of a group: committed in the order in which they were asked for, and fetched.

**An older offset commit never overwrites a newer one.** One OffsetCommit request is under way at a time; what is asked
for meanwhile waits, and goes out together with the next: of two offsets of one partition the later one is sent, and
both askers are told what became of it. Repeated are only the partitions that were refused, and with the offsets that
were sent last: what another commit sent for them may be written, even if its answer was lost and its asker is gone.

**A topic that was deleted keeps nobody waiting.** A partition that the coordinator refuses, and still refuses after it
told that there is none, fails; the others of the same commit count.

**A commit carries the identity of the moment in which it was asked for.** The member tells of each change: a commit
that still waits moves on with the member if all its partitions stayed with it without a break, and fails otherwise, for
they may be read by another member by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID

from oncelog.client.consumer_errors import CommitFailed, ConsumerClosed, ConsumerTimedOut
from oncelog.client.consumer_records import NO_GENERATION, GroupMetadata, OffsetAndMetadata
from oncelog.client.membership.commit_verdict import CommitVerdict, verdict_of
from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipSettings
from oncelog.client.membership.offset_fetches import Committed, OffsetFetches
from oncelog.client.membership.topic_doubts import TopicDoubts
from oncelog.client.membership.topic_ids import last_version, names_by_id, partitions_by_topic, topic_name
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network_events import Event, Lost, LostKind
from oncelog.errors import (
    NONE,
    CoordinatorNotAvailable,
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for_code,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

MAX_WAITING = 10_000
"""Commits that may wait for the coordinator; more are refused."""
FIRST_VERSION_BY_ID = 10

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Done = Callable[[Exception | None], None]
Withdraw = Callable[[], None]


class _Refusal(NamedTuple):
    error: KafkaError
    is_final: bool
    """Asking again does not help."""


class _Commit:
    __slots__ = (
        "deadline_ms",
        "done",
        "failure",
        "identity",
        "is_disowned",
        "last_error",
        "number",
        "offsets",
        "retry",
    )

    def __init__(
        self, number: int, offsets: Offsets, identity: GroupMetadata, deadline_ms: int, done: Done, retry: bool
    ) -> None:
        self.number = number
        self.offsets = dict(offsets)  # those that have no final answer yet
        self.identity = identity
        self.deadline_ms = deadline_ms
        self.done = done
        self.retry = retry
        self.is_disowned = False  # not all of its partitions stayed with the member
        self.last_error: Exception | None = None
        self.failure: Exception | None = None  # of a partition that will not be written


class OffsetCommits:
    def __init__(
        self,
        settings: MembershipSettings,
        link: CoordinatorLink,
        metadata: MetadataCache,
        jitter: Callable[[], float],
    ) -> None:
        self.needs_member = False
        """The consumer subscribes: without a generation nothing may be committed. One that assigns has none ever."""
        self.absence: CommitFailed | None = None
        """Why we have no generation, where there is more to say about it."""
        self.tell_member: Callable[[KafkaError, GroupMetadata, int], None] | None = None
        """What an answer said against the membership itself."""
        self.last_number = 0
        """Of the last commit that was asked for; they are numbered from 1 on."""
        self.commits = 0
        self.commit_ms = 0
        self.commit_ms_max = 0
        self._settings = settings
        self._link = link
        self._metadata = metadata
        self._backoff = settings.new_backoff(jitter)
        self._fetches = OffsetFetches(settings, link, metadata, jitter)
        self._doubts = TopicDoubts(link)
        self._waiting: deque[_Commit] = deque()
        self._under_way: list[_Commit] = []
        self._is_held = False
        self._send_at_ms = 0
        self._by_name = False
        self._refusals = link.refusals

    @property
    def is_idle(self) -> bool:
        """No commit waits or is under way."""
        return not self._waiting and not self._under_way

    def is_settled(self, number: int) -> bool:
        """Every commit up to this one has ended."""
        return not any(commit.number <= number for commit in (*self._under_way, *self._waiting))

    def commit(
        self,
        offsets: Offsets,
        identity: GroupMetadata,
        now_ms: int,
        done: Done,
        *,
        retry: bool,
        timeout_ms: int | None = None,
    ) -> Withdraw:
        """`done` hears None when all is durable. Without `retry` an error ends it that could be tried again. An asker
        that does not wait any more calls what it gets back: what is under way then is not repeated, the rest not sent.
        """
        if not offsets:
            done(None)
        elif self.needs_member and identity.generation_id == NO_GENERATION:
            done(self.absence or CommitFailed(_NOT_A_MEMBER))
        elif len(self._waiting) >= MAX_WAITING:
            done(CoordinatorNotAvailable(f"{MAX_WAITING} offset commits wait already: {self._link.why_not_ready}"))
        else:
            timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
            self.last_number += 1
            commit = _Commit(self.last_number, offsets, identity, now_ms + timeout_ms, done, retry)
            self._waiting.append(commit)
            return partial(self._withdraw, commit)
        return _nothing_to_withdraw

    def _withdraw(self, commit: _Commit) -> None:
        commit.retry = False
        if commit in self._waiting:
            self._waiting.remove(commit)

    @property
    def why_waiting(self) -> str | None:
        """Why what was asked of the group has no answer; None if nothing is known. For any thread."""
        errors = (commit.last_error for commit in self._waiting.copy())
        return next((str(error) for error in errors if error is not None), self._fetches.why_waiting)

    def fetch(
        self,
        partitions: Collection[TopicPartition],
        now_ms: int,
        done: Callable[[Committed | Exception], None],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """What the group has committed; None for a partition without an offset."""
        self._fetches.fetch(partitions, now_ms, done, timeout_ms=timeout_ms)

    def give_up(self) -> None:
        """The consumer ends: whoever still waits for an answer hears that there will be none."""
        late = [(commit, "the coordinator has not answered") for commit in self._under_way]
        late += [(commit, str(commit.last_error or self._link.why_not_ready)) for commit in self._waiting]
        self._under_way, self._waiting = [], deque()
        for commit, why in late:
            commit.done(ConsumerClosed(f"the consumer was closed before the group had the offsets: {why}"))

    def poll(self, now_ms: int) -> int:
        self._expire(now_ms)
        if self._refusals != self._link.refusals and self._link.refusal is not None:
            self._refusals = self._link.refusals
            self._fail_all(self._link.refusal)
        self._doubts.poll(now_ms)
        if self._may_send(now_ms) and self._link.is_ready(now_ms):
            self._send(now_ms)
        return min(self._wait_ms(now_ms), self._fetches.poll(now_ms))

    # --- what the member tells --------------------------------------------------------------------------------------

    def hold(self, owned: frozenset[TopicPartition]) -> None:
        """The member joins anew: no commit leaves before `moved_on` or `fenced`, and none for what it gave up."""
        self._is_held = True
        self._disown(owned)

    def let_out(self) -> None:
        """The member leaves instead of joining: what was held goes out with the identity that it has. The coordinator
        takes it unless the group has moved on meanwhile."""
        self._is_held = False

    def moved_on(self, identity: GroupMetadata, owned: frozenset[TopicPartition]) -> None:
        """The member has a new identity, and kept these partitions since the last one."""
        self._is_held = False
        self.absence = None
        self._disown(owned)
        for commit in (*self._under_way, *self._waiting):
            if not commit.is_disowned and _is_member(commit.identity):
                commit.identity = identity

    def fenced(self) -> None:
        """The member lost its place, and with it all partitions."""
        self._is_held = False
        self._disown(frozenset())

    def _disown(self, owned: frozenset[TopicPartition]) -> None:
        for commit in (*self._under_way, *self._waiting):
            if _is_member(commit.identity) and not owned.issuperset(commit.offsets):
                commit.is_disowned = True
        late = [commit for commit in self._waiting if commit.is_disowned]
        self._waiting = deque(commit for commit in self._waiting if not commit.is_disowned)
        for commit in late:
            commit.done(self.absence or CommitFailed(_TOO_LATE))

    # --- sending ----------------------------------------------------------------------------------------------------

    def _may_send(self, now_ms: int) -> bool:
        if not self._waiting or self._under_way or now_ms < self._send_at_ms:
            return False
        return not (self._is_held and _is_member(self._waiting[0].identity))

    def _send(self, now_ms: int) -> None:
        identity = self._waiting[0].identity
        while self._waiting and self._waiting[0].identity == identity:
            self._under_way.append(self._waiting.popleft())
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for commit in self._under_way:
            offsets.update(commit.offsets)
        body: Message = {
            "group_id": self._settings.group_id,
            "generation_id_or_member_epoch": identity.generation_id,
            "member_id": identity.member_id,
            "group_instance_id": identity.group_instance_id,
            "topics": partitions_by_topic(offsets, self._metadata.cluster, lambda one: _entry(one, offsets[one])),
        }
        version = last_version(body["topics"], FIRST_VERSION_BY_ID, by_name=self._by_name)
        done = partial(self._answered, identity, offsets, names_by_id(body["topics"]))
        self._link.send(ApiKey.OFFSET_COMMIT, body, now_ms, done, max_version=version)

    def _wait_ms(self, now_ms: int) -> int:
        if not self._waiting:
            return MAX_POLL_MS
        deadline_ms = min(commit.deadline_ms for commit in self._waiting)
        wait_ms = self._link.wait_ms(now_ms) if now_ms >= self._send_at_ms else self._send_at_ms - now_ms
        return max(0, min(wait_ms, deadline_ms - now_ms, MAX_POLL_MS))

    def _expire(self, now_ms: int) -> None:
        late = [commit for commit in self._waiting if now_ms >= commit.deadline_ms]
        if not late:
            return
        self._waiting = deque(commit for commit in self._waiting if now_ms < commit.deadline_ms)
        for commit in late:
            why = commit.last_error or self._link.why_not_ready
            late_ones = ", ".join(map(str, sorted(commit.offsets)))
            commit.done(ConsumerTimedOut(f"the offsets of {late_ones} could not be committed in time: {why}"))

    def _fail_all(self, error: Exception) -> None:
        failed, self._waiting = self._waiting, deque()
        for commit in failed:
            commit.done(error)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(
        self, identity: GroupMetadata, sent: Offsets, names: Mapping[UUID, str], event: Event, now_ms: int
    ) -> None:
        commits, self._under_way = self._under_way, []
        if isinstance(event, Lost):
            self._end_lost(commits, sent, event, now_ms)
            return
        took_ms = now_ms - event.sent_ms
        self.commits += 1
        self.commit_ms += took_ms
        self.commit_ms_max = max(self.commit_ms_max, took_ms)
        codes = _codes_of(event.body, names)
        self._react(codes.values(), identity, now_ms)
        refusals = {one: self._refusal(one, codes.get(one)) for one in sent if codes.get(one) != NONE}
        for commit in commits:
            refused = [one for one in commit.offsets if one in refusals]
            commit.offsets = {one: sent[one] for one in refused if self._is_repeated(commit, refusals[one])}
        again = {one for commit in commits for one in commit.offsets}
        self._doubts.begin(one.topic for one in again if _is_unknown(refusals[one].error))
        if again:
            self._send_at_ms = now_ms + self._backoff.next_ms()
        else:
            self._backoff.reset()
        self._finish(commits)

    def _refusal(self, partition: TopicPartition, code: int | None) -> _Refusal:
        if code is None:
            left_out = f"the coordinator's answer to an offset commit left {partition} out"
            return _Refusal(error_for_code(-1, left_out), is_final=True)
        error = error_for_code(code)
        if _is_unknown(error) and self._doubts.is_gone(partition):
            return _Refusal(UnknownTopicOrPartition(_GONE.format(partition)), is_final=True)
        return _Refusal(error, is_final=verdict_of(error) is CommitVerdict.FINAL)

    def _is_repeated(self, commit: _Commit, refusal: _Refusal) -> bool:
        """Whether the partition is sent again; if not, it has failed."""
        error = refusal.error
        failure: Exception = error
        if verdict_of(error) is CommitVerdict.TOO_LATE or (commit.is_disowned and not refusal.is_final):
            failure = CommitFailed(f"{_TOO_LATE} ({error.name})")
        elif commit.retry and not refusal.is_final:
            commit.last_error = error
            return True
        commit.failure = commit.failure or failure
        return False

    def _react(self, codes: Iterable[int], identity: GroupMetadata, now_ms: int) -> None:
        """What the answer means for the coordinator, the metadata and the membership, once for all partitions."""
        for code in set(codes) - {NONE}:
            error = error_for_code(code)
            verdict = verdict_of(error)
            if verdict is CommitVerdict.MOVED:
                self._link.forget(f"{error.name} from OffsetCommit", now_ms)
            elif verdict is CommitVerdict.UNKNOWN_ID:
                self._by_name = True
            if error.stale_metadata:
                self._metadata.mark_stale()
            if verdict.concerns_member and _is_member(identity) and self.tell_member is not None:
                self.tell_member(error, identity, now_ms)

    def _end_lost(self, commits: list[_Commit], sent: Offsets, event: Lost, now_ms: int) -> None:
        error: KafkaError = CoordinatorNotAvailable(f"the answer to an offset commit was lost: {event.reason}")
        if event.kind is LostKind.UNSUPPORTED:
            error = UnsupportedVersion(event.reason)
        for commit in commits:
            if not commit.is_disowned and event.kind is not LostKind.UNSUPPORTED and commit.retry:
                commit.last_error = error
                commit.offsets = {one: sent[one] for one in commit.offsets}
            else:
                commit.failure = CommitFailed(_TOO_LATE) if commit.is_disowned else error
                commit.offsets = {}
        self._send_at_ms = now_ms + self._backoff.next_ms()
        self._finish(commits)

    def _finish(self, commits: list[_Commit]) -> None:
        """State first, then the askers, who may ask for more: in the order in which they asked."""
        self._waiting.extendleft(commit for commit in reversed(commits) if commit.offsets)
        for commit in commits:
            if not commit.offsets:
                commit.done(commit.failure)


_TOO_LATE = (
    "the offsets came too late: in a rebalance the partitions were given to another member, which may process the"
    " records since the last offset commit again. Commit in on_revoked, call poll() at least every"
    " max.poll.interval.ms, or process fewer records a time (max.poll.records)"
)
_GONE = (
    "{} does not exist any more, so its offset is not committed (those of other partitions are); unassign it, or create"
    " the topic again"
)
_NOT_A_MEMBER = (
    "this consumer is not a member of its group at the moment, so it owns no partitions whose offsets it could commit;"
    " poll() joins the group"
)


def _is_member(identity: GroupMetadata) -> bool:
    return identity.generation_id != NO_GENERATION


def _entry(partition: TopicPartition, committed: OffsetAndMetadata) -> Message:
    return {
        "partition_index": partition.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "committed_metadata": committed.metadata,
    }


def _codes_of(body: Message, names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic_name(topic, names), one["partition_index"]): one["error_code"]
        for topic in body["topics"]
        for one in topic["partitions"]
    }


def _is_unknown(error: KafkaError) -> bool:
    return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)


def _nothing_to_withdraw() -> None:
    """It has ended."""
