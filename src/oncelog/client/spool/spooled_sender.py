"""A sender whose records come through a spool: first it settles what an earlier process left, then it feeds.

    asking ──all fates judged──> running
       └──unknown, and the user wants to decide himself──> given up, the spool untouched

While asking, records are accepted (they are on disk) and nothing is sent. What this process gives up as a whole,
because it is closed or broken, stays in the spool. With a transactional id a `Transactor` goes on from there, and feeds
when it has a transaction open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from oncelog.client.network import Network
from oncelog.client.network_events import Event
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.sender import SenderCore
from oncelog.client.spool.asking import Asked
from oncelog.client.spool.errors import SpoolError, SpoolFateUnknown, SpoolWriteFailed
from oncelog.client.spool.fate import Judgement, Unknown
from oncelog.client.spool.feeding import Feeder
from oncelog.client.spool.recovery import Recovery
from oncelog.client.spool.refusal import ranges_in_words, refusal
from oncelog.client.spool.resolving import Question, Resolver
from oncelog.client.spool.spool import Spool
from oncelog.client.spool.transacting import Transactor

REFUSE, RESEND, DISCARD = "refuse", "resend", "discard"
LOOK_FOR_TOPICS_MS = 1_000
"""How often brokers are asked for a topic that records on disk wait for."""

NewTransactor = Callable[[Callable[[int], bool], Callable[[Iterable[Unknown]], None]], Transactor]
"""Makes a transactor from how to feed, and from what decides about entries of unknown fate."""

logger = logging.getLogger(__name__)


class SpooledSender:
    """What a driver runs: `SenderCore`, with the spool before it."""

    def __init__(
        self,
        core: SenderCore,
        spool: Spool,
        feeder: Feeder,
        resolver: Resolver,
        *,
        directory: str,
        when_unknown: str,
        on_news: Callable[[], None],
        new_transactor: NewTransactor | None = None,
        found: Recovery | None = None,
    ) -> None:
        self._core = core
        self._spool = spool
        self._feeder = feeder
        self._resolver: Resolver | None = resolver
        self._directory = directory
        self._when_unknown = when_unknown
        self._found = found or Recovery()
        self._on_news = on_news
        self._look_for_topics_at_ms = 0
        self.close_at_ms: int | None = None
        """When set: finish what was accepted, and leave the rest in the spool then."""
        core.keep_numbers_in(feeder)
        self._transactor = None if new_transactor is None else new_transactor(self._feed, self._judge_unknown)

    @property
    def network(self) -> Network:
        return self._core.network

    @property
    def is_finished(self) -> bool:
        return self._core.is_finished

    @property
    def is_asking(self) -> bool:
        """It is not known yet what became of records that an earlier process left."""
        if self.fatal is not None:
            return False
        return self._resolver is not None or (self._transactor is not None and not self._transactor.has_started)

    @property
    def fatal(self) -> Exception | None:
        """Why nothing can be sent any more."""
        if self._transactor is not None and self._transactor.recovers:
            return None
        return self._core.fatal

    def poll(self, now_ms: int) -> int:
        wake_ms: int | None = None
        is_hungry = False
        if self.fatal is None:
            try:
                if self._resolver is not None:
                    wake_ms = self._resolver.poll(now_ms)
                    self._conclude_if_done(now_ms)
                if self._transactor is None:
                    is_hungry = self._feed(now_ms)
                elif self._resolver is None:
                    wake_ms = self._transactor.poll(now_ms, is_closing=self.close_at_ms is not None)
                    is_hungry = wake_ms is not None and wake_ms <= now_ms
                if self._spool.failure is not None:
                    raise SpoolWriteFailed(f"{self._spool.failure}; close the producer and open the spool again")
            except SpoolError as error:
                self._give_up(error)
        self._core.close_at_ms = None if self._has_time_for_more(now_ms) else self.close_at_ms
        self._feeder.keeps_failed |= self.fatal is not None or self._is_overdue(now_ms)
        sleep_ms = self._core.poll(now_ms)
        self._tell_those_who_wait()
        if is_hungry:
            return 0
        due_ms = [due_ms for due_ms in (wake_ms, self.close_at_ms) if due_ms is not None and due_ms > now_ms]
        return min(sleep_ms, *(each - now_ms for each in due_ms)) if due_ms else sleep_ms

    def handle(self, event: Event, now_ms: int) -> None:
        if self._transactor is not None:
            self._transactor.saw(now_ms)
        if isinstance(event.tag, Question):
            if self._resolver is not None:
                self._resolver.handle(event, now_ms)
        elif isinstance(event.tag, Asked):
            event.tag.handle(event, now_ms)
        else:
            self._core.handle(event, now_ms)

    def failed(self, error: BaseException) -> None:
        self._feeder.keeps_failed = True
        self._core.failed(error)
        self._tell_those_who_wait()

    # --- records on disk ----------------------------------------------------------------------------------------

    def _feed(self, now_ms: int) -> bool:
        if self._feeder.parked and now_ms >= self._look_for_topics_at_ms:
            self._look_for_topics_at_ms = now_ms + LOOK_FOR_TOPICS_MS
            for topic in self._feeder.parked:
                self._core.metadata.want(topic, now_ms)
        waiting = self._spool.waiting
        is_hungry = self._feeder.feed(now_ms)
        if self._spool.waiting < waiting:
            self._on_news()
        return is_hungry

    def _has_time_for_more(self, now_ms: int) -> bool:
        """Whether a producer that is being closed still has records to load."""
        if self.close_at_ms is None or self.fatal is not None or now_ms >= self.close_at_ms:
            return self.close_at_ms is None
        is_drained = self._feeder.is_drained if self._transactor is None else not self._transactor.needs_time
        if self._resolver is not None or not is_drained:
            return True
        return any(topic not in self._core.metadata.topic_errors for topic in self._feeder.parked)

    def _is_overdue(self, now_ms: int) -> bool:
        return self.close_at_ms is not None and now_ms >= self.close_at_ms

    def _give_up(self, error: Exception) -> None:
        self._feeder.keeps_failed = True
        self._core.give_up(error)

    def _tell_those_who_wait(self) -> None:
        if self.fatal is None and not self._core.is_finished:
            return
        why = "closed" if self.fatal is None else f"ended by {self.fatal}"
        self._feeder.close(
            ProducerClosed(f"the producer is {why}; what {self._directory} holds is sent by the next one on this spool")
        )

    # --- what an earlier process left -----------------------------------------------------------------------------

    def _conclude_if_done(self, now_ms: int) -> None:
        resolver = self._resolver
        if resolver is None or not resolver.is_done:
            return
        judgements = list(resolver.judgements.values())
        unknown = [one for judgement in judgements for one in judgement.unknown]
        if unknown and self._when_unknown == REFUSE:
            self._give_up(self._refusal(unknown))
            return
        self._feeder.acquire()
        try:
            self._decide(unknown)
            self._settle(judgements)
            self._spool.resolved()
        finally:
            self._feeder.release()
        for judgement in judgements:
            revived = [self._feeder.revive(batch, now_ms) for batch in (*judgement.listed, *judgement.again)]
            for batch in revived[: len(judgement.listed)]:
                batch.is_listed = True
            self._core.adopt(revived)
        self._resolver = None
        self._feeder.is_flowing = self._transactor is None
        self._on_news()

    def _settle(self, judgements: Iterable[Judgement]) -> None:
        for judgement in judgements:
            for batch in judgement.stored:
                topic, partition = batch.numbers.partition
                if not batch.is_complete:
                    logger.warning(
                        "records %d to %d of %s are stored, its leader says, though some of them cannot be read here",
                        batch.numbers.first, batch.numbers.end - 1, batch.numbers.partition,
                    )  # fmt: skip
                self._spool.settled(topic, partition, batch.numbers.first, batch.numbers.count)
            for batch in judgement.anew:
                self._spool.void(batch.numbers.partition, batch.numbers.first, batch.numbers.end)

    def _judge_unknown(self, unknown: Iterable[Unknown]) -> None:
        """For the transactor. Raises SpoolFateUnknown if the user wants to decide."""
        unknown = list(unknown)
        if unknown and self._when_unknown == REFUSE:
            raise self._refusal(unknown)
        self._decide(unknown)

    def _decide(self, unknown: Iterable[Unknown]) -> None:
        for one in unknown:
            gone = self._spool.unreadable(one.partition, one.first, one.end)
            readable = one.end - one.first - sum(end - first for first, end in gone)
            if self._when_unknown == RESEND:
                self._spool.void(one.partition, one.first, one.end)
                done = f"spool_unknown=resend sends {readable} of them (again)"
            else:
                path = self._spool.discard(one.partition, one.first, one.end)
                done = (
                    "nothing is left to discard"
                    if path is None
                    else f"spool_unknown=discard moved {readable} to {path}"
                )
            if gone:
                done += f"; records {ranges_in_words(gone)} cannot be read, and are lost unless they are stored"
            logger.warning(
                "records %d to %d of %s of an earlier run may be stored already: %s; %s",
                one.first, one.end - 1, one.partition, one.reason, done,
            )  # fmt: skip

    def _refusal(self, unknown: list[Unknown]) -> SpoolFateUnknown:
        error = refusal(self._directory, unknown, self._found, self._spool)
        logger.error("%s", error)
        return error
