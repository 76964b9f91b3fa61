"""The questions to a transaction's coordinators: one at a time, each asked until it is answered.

Owns who is asked (the coordinator of the transactional id, or that of a group), when again after which answer, and what
to say to people while it takes long. Never decides what to ask, nor what an answer means for the transaction: answers
go to whoever asked, errors that asking again does not mend to `on_refused`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from oncelog.client.membership.backoff import Backoff
from oncelog.client.membership.coordinator_link import GROUP_KEY, TRANSACTION_KEY, CoordinatorLink
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, Lost, LostKind
from oncelog.client.occasional import OccasionalWarning
from oncelog.client.transaction import requests
from oncelog.client.transaction.model import TransactionSettings
from oncelog.client.transaction.verdict import TransactionVerdict, verdict_of
from oncelog.errors import (
    CoordinatorLoadInProgress,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for_code,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

logger = logging.getLogger(__name__)

CONTENTION_BACKOFF_MS = 2
"""The first pause while the transaction before this one is being completed, or something else is added to it. Kafka's
group coordinator cannot say that in an answer, and says instead that it loads."""
SLOW_AFTER_MS = 2_000
"""People hear why a question is asked again and again if that goes on for so long; most of it passes by itself."""
MAX_GROUPS = 16
"""Groups whose coordinators are remembered; most producers ever have one."""

Done = Callable[[Message, Answered, int], None]
Refused = Mapping[TopicPartition, KafkaError]
OnRefused = Callable[[TransactionVerdict, KafkaError, Refused], None]
"""With the partitions that the coordinator has named as the reason."""
NONE_NAMED: Refused = {}


class Conversation:
    def __init__(
        self,
        settings: TransactionSettings,
        network: Network,
        jitter: Callable[[], float],
        on_refused: OnRefused,
        on_contended: Callable[[], None],
    ) -> None:
        self.is_waiting = False
        """A question is not answered yet."""
        self._settings = settings
        self._network = network
        self._jitter = jitter
        self._on_refused = on_refused
        self._on_contended = on_contended
        self._link = CoordinatorLink(TRANSACTION_KEY, settings.transactional_id, network, settings.new_backoff(jitter))
        self._group_links: dict[str, CoordinatorLink] = {}
        self._backoff = settings.new_backoff(jitter)
        self._contention = settings.new_backoff(jitter, CONTENTION_BACKOFF_MS)
        self._ask_at_ms = 0
        self._last_error = ""
        self._troubled_since_ms: int | None = None
        self._warning = OccasionalWarning(logger)
        self._is_over = False

    def end(self) -> None:
        """Nobody wants to hear answers any more."""
        self._is_over = True

    @property
    def refusal(self) -> KafkaError | None:
        """Why the brokers name no coordinator of the transactional id."""
        return self._link.refusal

    @property
    def why_slow(self) -> str:
        return self._last_error or self._link.why_not_ready

    def hopeless_ms(self, now_ms: int) -> int | None:
        """From when on the coordinator is not to be waited for any more, with what it would do by itself in time; None
        while it is there."""
        self._link.look(now_ms)
        return self._link.hopeless_ms()

    def handle(self, event: Event, now_ms: int) -> None:
        if not self._link.handle(event, now_ms):
            any(link.handle(event, now_ms) for link in list(self._group_links.values()))

    def ready_to_ask(self, group_id: str | None, now_ms: int) -> CoordinatorLink | int:
        """The link on which a question may be asked now, or when to come back. None for the group means the coordinator
        of the transactional id."""
        if now_ms < self._ask_at_ms:
            return self._ask_at_ms
        link = self._link if group_id is None else self._link_to(group_id, now_ms)
        if group_id is not None and link.refusal is not None:
            del self._group_links[group_id]  # whoever asks again begins a new search
            self._on_refused(TransactionVerdict.ABORT, link.refusal, NONE_NAMED)
            return now_ms
        return link if link.is_ready(now_ms) else now_ms + link.wait_ms(now_ms)

    def _link_to(self, group_id: str, now_ms: int) -> CoordinatorLink:
        link = self._group_links.get(group_id)
        if link is None:
            if len(self._group_links) >= MAX_GROUPS:
                oldest = next(iter(self._group_links))
                self._group_links.pop(oldest).forget("other groups are asked now", now_ms)
            backoff = self._settings.new_backoff(self._jitter)
            link = self._group_links[group_id] = CoordinatorLink(GROUP_KEY, group_id, self._network, backoff)
        return link

    def ask(
        self,
        link: CoordinatorLink,
        question: requests.Question,
        body: Message,
        now_ms: int,
        done: Done,
        *,
        by_protocol_2: bool,
    ) -> None:
        def answered(event: Event, now_ms: int) -> None:
            self.is_waiting = False
            if not self._is_over:
                self._judge(link, question, event, now_ms, done)

        self.is_waiting = True
        last = None if by_protocol_2 else question.last_by_protocol_1
        link.send(question.api_key, body, now_ms, answered, max_version=last)

    def look(self, link: CoordinatorLink, body: Message, now_ms: int, done: Callable[[Message | None], None]) -> None:
        """Ask once for the state of the transaction. Nothing depends on the answer: where there is none, so be it."""

        def answered(event: Event, _: int) -> None:
            self.is_waiting = False
            if not self._is_over:
                done(event.body if isinstance(event, Answered) else None)

        self.is_waiting = True
        link.send(ApiKey.DESCRIBE_TRANSACTIONS, body, now_ms, answered)

    def _judge(self, link: CoordinatorLink, question: requests.Question, event: Event, now_ms: int, done: Done) -> None:
        if isinstance(event, Lost):
            if event.kind is LostKind.UNSUPPORTED:
                unsupported = UnsupportedVersion(f"{event.reason}; transactions need it")
                self._on_refused(TransactionVerdict.FATAL, unsupported, NONE_NAMED)
            else:
                self._again_after_trouble(question, event.reason, now_ms)
            return
        code = requests.worst_code(question.api_key, event.body)
        error = error_for_code(code)
        is_contended = question is requests.COMMIT_OFFSETS and code == CoordinatorLoadInProgress.code
        verdict = TransactionVerdict.CONTENDED if is_contended else verdict_of(code)
        if verdict is TransactionVerdict.DONE:
            self._backoff.reset()
            self._contention.reset()
            self._last_error = ""
            self._troubled_since_ms = None
            done(event.body, event, now_ms)
        elif verdict is TransactionVerdict.CONTENDED:
            self._on_contended()
            self._again(error.name, self._contention, now_ms)
        elif verdict is TransactionVerdict.RETRY:
            self._again_after_trouble(question, _what_is_refused(question, event.body, error), now_ms)
        elif verdict is TransactionVerdict.MOVED:
            link.forget(f"{error.name} from {question.api_key.name}", now_ms)
            self._again_after_trouble(question, error.name, now_ms)
        else:
            adds = question is requests.ADD_PARTITIONS
            self._on_refused(verdict, error, requests.refused_partitions(event.body) if adds else NONE_NAMED)

    def _again_after_trouble(self, question: requests.Question, why: str, now_ms: int) -> None:
        """Other than by contention, which is over soon. What does not pass ends the transaction when it times out, and
        people shall not learn only then what was wrong."""
        if self._troubled_since_ms is None:
            self._troubled_since_ms = now_ms
        if now_ms >= self._troubled_since_ms + SLOW_AFTER_MS:
            self._warning.give(
                now_ms,
                "transactional id %r: %s: %s; asked again without success for %d ms. A transaction that takes longer"
                " than transaction.timeout.ms is aborted",
                self._settings.transactional_id,
                question.api_key.name,
                why,
                now_ms - self._troubled_since_ms,
            )
        self._again(why, self._backoff, now_ms)

    def _again(self, why: str, backoff: Backoff, now_ms: int) -> None:
        self._last_error = why
        self._ask_at_ms = now_ms + backoff.next_ms()


def _what_is_refused(question: requests.Question, answer: Message, error: KafkaError) -> str:
    """With the partitions, where offsets are refused for some of them: their topic may have been deleted."""
    if question is not requests.COMMIT_OFFSETS:
        return error.name
    refused = [
        f"{topic['name']}-{one['partition_index']}"
        for topic in answer["topics"]
        for one in topic["partitions"]
        if one["error_code"] == error.code
    ]
    hint = " (was the topic deleted?)" if error.code == UnknownTopicOrPartition.code else ""
    return f"{error.name} for the offsets of {', '.join(refused)}{hint}"
