"""`oncelog consume --group`: as a member of a group. Offsets are committed after the records were written: what is
killed in between is printed again.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from functools import cached_property

from oncelog.cli.consume import Render, WaitNotice
from oncelog.cli.ending import ending
from oncelog.cli.output import note, reader_is_gone
from oncelog.client.consumer_errors import NotAssigned
from oncelog.client.settings import nearest
from oncelog.consumer.consumer import Consumer
from oncelog.errors import OncelogError
from oncelog.types import TopicPartition

HINT_S = 2.0
"""How long the brokers may take to tell which topics there are, for a hint."""
MAX_WAIT_S = 0.5
"""How late a member of a group notices --timeout at most."""


def copy_as_member(consumer: Consumer, render: Render, waiting: WaitNotice, args: argparse.Namespace) -> None:
    """And close the consumer, however it ends."""
    member = _Member(consumer, args)
    try:
        consumer.subscribe([args.topic])
        member.copy(render, waiting, args.max, args.timeout)
    finally:
        try:
            with ending(member.why_leaving_takes_long):
                consumer.close()
        finally:
            member.tell_uncommitted()


class _Member:
    def __init__(self, consumer: Consumer, args: argparse.Namespace) -> None:
        self._consumer = consumer
        self._topic, self._group = args.topic, args.group
        self._uncommitted = 0
        """Records that were printed, and whose offsets may not be committed."""

    def copy(self, render: Render, waiting: WaitNotice, limit: int | None, timeout_s: float | None) -> None:
        out = sys.stdout.buffer
        left = limit
        last_news = time.monotonic()
        while left != 0:
            records = self._consumer.poll(MAX_WAIT_S, max_records=left)
            self._uncommitted = len(records)
            for record in records:
                out.write(render(TopicPartition(record.topic, record.partition), record))
            out.flush()
            left = None if left is None else left - len(records)
            now = time.monotonic()
            if records:
                self._consumer.commit()
                self._uncommitted = 0
                last_news = now
            elif reader_is_gone() or (timeout_s is not None and now - last_news >= timeout_s):
                return
            else:
                waiting.quiet_for(now - last_news, left, self._why_quiet())

    def _why_quiet(self) -> str | None:
        """If not because all is read."""
        consumer = self._consumer
        if not consumer.is_connected:
            return "no broker can be reached"
        if self._topic in consumer.missing_topics:
            return f"there is no topic {self._topic}{self._meant}"
        if consumer._is_kept_waiting:
            return "a broker that was asked for records has not answered"
        if not consumer.assignment():
            return f"group {self._group} has given this member no partition of {self._topic} yet"
        if any(self._lag(partition) != 0 for partition in consumer.assignment()):
            return f"nothing arrives, although this member is not at the end of {self._topic}"
        return None

    @cached_property
    def _meant(self) -> str:
        """Asked for once, by somebody who waits for nothing else."""
        with suppress(OncelogError):
            near = nearest(self._topic, self._consumer.topics(timeout=HINT_S))
            if near is not None:
                return f" (did you mean {near}?)"
        return ""

    def _lag(self, partition: TopicPartition) -> int | None:
        with suppress(NotAssigned):  # it was lost just now
            return self._consumer.lag(partition)
        return None

    def why_leaving_takes_long(self) -> str:
        why = "its broker has not answered yet" if self._consumer.is_connected else "no broker can be reached"
        return f"leaving group {self._group}: {why}"

    def tell_uncommitted(self) -> None:
        if self._uncommitted:
            count = self._uncommitted
            records = "the last record" if count == 1 else f"the last {count:,} records"
            note(f"{records} may be read again by the group: the commit of their offsets was not confirmed")
