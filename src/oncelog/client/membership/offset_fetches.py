"""Asks the coordinator what a group has committed. Changes nothing: a question may be repeated as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from uuid import UUID

from oncelog.client.consumer_errors import ConsumerTimedOut
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.membership.commit_verdict import CommitVerdict, verdict_of
from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipSettings
from oncelog.client.membership.topic_ids import last_version, names_by_id, partitions_by_topic, topic_name
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network_events import Event, Lost, LostKind
from oncelog.errors import NONE, KafkaError, UnknownTopicOrPartition, UnsupportedVersion, error_for_code
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

FIRST_VERSION_BY_ID = 10
FIRST_VERSION_OF_GROUPS = 8

Committed = dict[TopicPartition, OffsetAndMetadata | None]
Done = Callable[[Committed | Exception], None]


class _Fetch:
    __slots__ = ("ask_at_ms", "deadline_ms", "done", "is_under_way", "last_error", "partitions")

    def __init__(self, partitions: Collection[TopicPartition], deadline_ms: int, done: Done) -> None:
        self.partitions = list(partitions)
        self.deadline_ms = deadline_ms
        self.done = done
        self.ask_at_ms = 0
        self.is_under_way = False
        self.last_error: Exception | None = None


class OffsetFetches:
    def __init__(
        self,
        settings: MembershipSettings,
        link: CoordinatorLink,
        metadata: MetadataCache,
        jitter: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._link = link
        self._metadata = metadata
        self._backoff = settings.new_backoff(jitter)
        self._fetches: list[_Fetch] = []
        self._refusals = link.refusals
        self._by_name = False

    def fetch(
        self, partitions: Collection[TopicPartition], now_ms: int, done: Done, *, timeout_ms: int | None = None
    ) -> None:
        if not partitions:
            done({})
            return
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._fetches.append(_Fetch(partitions, now_ms + timeout_ms, done))

    @property
    def why_waiting(self) -> str | None:
        """For any thread."""
        errors = (fetch.last_error for fetch in list(self._fetches))
        return next((str(error) for error in errors if error is not None), self._link.why_silent)

    def poll(self, now_ms: int) -> int:
        wait_ms = MAX_POLL_MS
        if self._refusals != self._link.refusals and self._link.refusal is not None:
            self._refusals = self._link.refusals
            for fetch in [one for one in self._fetches if not one.is_under_way]:
                self._end(fetch, self._link.refusal)
        for fetch in [one for one in self._fetches if not one.is_under_way]:
            if now_ms >= fetch.deadline_ms:
                why = fetch.last_error or self._link.why_not_ready
                self._end(fetch, ConsumerTimedOut(f"the committed offsets could not be fetched in time: {why}"))
            elif now_ms < fetch.ask_at_ms:
                wait_ms = min(wait_ms, fetch.ask_at_ms - now_ms)
            elif self._link.is_ready(now_ms):
                self._ask(fetch, now_ms)
            else:
                wait_ms = min(wait_ms, self._link.wait_ms(now_ms), fetch.deadline_ms - now_ms)
        return wait_ms

    def _ask(self, fetch: _Fetch, now_ms: int) -> None:
        topics = partitions_by_topic(
            fetch.partitions, self._metadata.cluster, lambda one: one.partition, field="partition_indexes"
        )
        by_name = [{"name": topic["name"], "partition_indexes": topic["partition_indexes"]} for topic in topics]
        group_id = self._settings.group_id
        body: Message = {
            "group_id": group_id,
            "topics": by_name,
            "groups": [{"group_id": group_id, "topics": topics}],
            "require_stable": self._settings.require_stable,
        }
        fetch.is_under_way = True
        version = last_version(topics, FIRST_VERSION_BY_ID, by_name=self._by_name)
        done = partial(self._answered, fetch, names_by_id(topics))
        self._link.send(ApiKey.OFFSET_FETCH, body, now_ms, done, max_version=version)

    def _answered(self, fetch: _Fetch, names: Mapping[UUID, str], event: Event, now_ms: int) -> None:
        fetch.is_under_way = False
        if isinstance(event, Lost):
            if event.kind is LostKind.UNSUPPORTED:
                self._end(fetch, UnsupportedVersion(event.reason))
            else:
                self._later(fetch, KafkaError(event.reason), now_ms)
            return
        body = event.body
        if event.version >= FIRST_VERSION_OF_GROUPS:
            body = next(iter(body["groups"]), {"error_code": -1, "topics": []})
        try:
            committed = _read(fetch, names, body)
        except KafkaError as error:
            self._judge(fetch, error, now_ms)
        else:
            self._backoff.reset()
            self._end(fetch, committed)

    def _judge(self, fetch: _Fetch, error: KafkaError, now_ms: int) -> None:
        verdict = verdict_of(error)
        if verdict is CommitVerdict.MOVED:
            self._link.forget(f"{error.name} from OffsetFetch", now_ms)
        elif verdict is CommitVerdict.UNKNOWN_ID:
            self._by_name = True
            self._metadata.mark_stale()
        elif verdict is not CommitVerdict.AGAIN:
            self._end(fetch, error)
            return
        self._later(fetch, error, now_ms)

    def _later(self, fetch: _Fetch, error: Exception, now_ms: int) -> None:
        fetch.last_error = error
        fetch.ask_at_ms = now_ms + self._backoff.next_ms()

    def _end(self, fetch: _Fetch, result: Committed | Exception) -> None:
        self._fetches.remove(fetch)
        fetch.done(result)


def _read(fetch: _Fetch, names: Mapping[UUID, str], body: Message) -> Committed:
    """Raises the first error that the answer has for the group or for one of the partitions."""
    if body["error_code"] != NONE:
        raise error_for_code(body["error_code"])
    committed: Committed = dict.fromkeys(fetch.partitions)
    for topic in body["topics"]:
        name = topic_name(topic, names)
        for one in topic["partitions"]:
            error = None if one["error_code"] == NONE else error_for_code(one["error_code"], f"topic {name!r}")
            if error is not None and not isinstance(error, UnknownTopicOrPartition):
                raise error
            partition = TopicPartition(name, one["partition_index"])
            if error is None and one["committed_offset"] >= 0 and partition in committed:
                committed[partition] = OffsetAndMetadata(
                    one["committed_offset"], one["metadata"] or "", one["committed_leader_epoch"]
                )
    return committed
