"""The demo's first act: producers, processors in transactions and two groups that book, through faults and kills."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from oncelog.cli.demo_broker import MortalBroker
from oncelog.cli.demo_chronicle import Chronicle, Who
from oncelog.cli.demo_member import Way
from oncelog.cli.demo_members import Members
from oncelog.cli.demo_outcome import Evidence, Tally
from oncelog.cli.demo_play import play
from oncelog.cli.demo_processors import Processors
from oncelog.cli.demo_producers import Sending
from oncelog.cli.demo_screen import Screen, progress_screen
from oncelog.cli.demo_script import CLIENT_STEPS, Act, Script
from oncelog.report import Tone
from oncelog.types import IsolationLevel

PLACES = ("acknowledged", "booked")
ORDERS, PAYMENTS = "orders", "payments"
RECORDS_PER_S = 5_000
"""Not as fast as can be, so that every fault strikes records on their way, and readers keep up."""
STALL_TIMEOUT_S = 90.0


def perform(
    broker: MortalBroker, records: int, folder: Path, tally: Tally, chronicle: Chronicle, console: Console
) -> Evidence:
    script = Script(records, CLIENT_STEPS)
    pace = script, tally.seed, RECORDS_PER_S
    with progress_screen(console, records, PLACES, lambda: chronicle.elapsed_s) as screen:
        screen.tell(f"act 1: {records:,} orders through fault proxies to processors and consumers (seed {tally.seed})")
        with (
            Sending(broker.process, ORDERS, *pace, enable_idempotence=True) as sent,
            Sending(broker.process, "orders-plain", *pace, enable_idempotence=False) as sent_plainly,
            Processors(broker.process, ORDERS, PAYMENTS, folder, tally.seed) as processors,
            Members(Way.ONCE, broker.process, PAYMENTS, folder, tally.seed) as booked,
            Members(Way.PLAIN, broker.process, PAYMENTS, folder, tally.seed) as booked_plainly,
        ):
            stage = _Stage(broker, [sent, sent_plainly], processors, [booked, booked_plainly], tally, chronicle)
            play(stage, script, screen, chronicle, STALL_TIMEOUT_S)
            stage.end(screen)
            tally.count_faults(sent.proxy.report(), processors.proxy.report(), booked.proxy.report())
            ledger = sent.load.ledger.elsewhere()
            return Evidence(
                stored=sent.audit(),
                stored_plainly=sent_plainly.audit(),
                processed=processors.audit(ledger, IsolationLevel.READ_COMMITTED),
                processed_plainly=processors.audit(ledger, IsolationLevel.READ_UNCOMMITTED),
                booked=booked.audit(ledger),
                booked_plainly=booked_plainly.audit(ledger),
            )


class _Stage:
    """The senders, the processors and the groups, and what is done to them."""

    def __init__(
        self,
        broker: MortalBroker,
        senders: list[Sending],
        processors: Processors,
        groups: list[Members],
        tally: Tally,
        chronicle: Chronicle,
    ) -> None:
        self._broker = broker
        self._senders = senders
        self._processors = processors
        self._groups = groups
        self._tally = tally
        self._chronicle = chronicle
        for who in (Who.PRODUCER, Who.PROCESSORS, Who.CONSUMERS):
            chronicle.begins(who)

    @property
    def counts(self) -> dict[str, int]:
        return {"acknowledged": self.reached, "booked": min(group.booked for group in self._groups)}

    @property
    def reached(self) -> int:
        return min(sender.settled for sender in self._senders)

    def is_complete(self, records: int) -> bool:
        return (
            self.reached >= records
            and not self._is_in_trouble
            and all(group.has_booked(records) for group in self._groups)
        )

    @property
    def _is_in_trouble(self) -> bool:
        return any(crew.is_in_trouble for crew in (self._processors, *self._groups))

    def perform(self, act: Act, screen: Screen) -> bool:
        if act is Act.KILL_BROKER:
            self._broker.kill(screen)
            return True
        if self._is_in_trouble:
            return False
        match act:
            case Act.KILL_PROCESSOR:
                self._processors.set_kill_trap()
            case Act.KILL_MEMBERS:
                for group in self._groups:
                    group.set_kill_trap()
            case Act.SLEEP:
                for group in self._groups:
                    group.set_sleep_trap()
            case Act.JOIN:
                for group in self._groups:
                    group.add_one()
                self._tell(Who.CONSUMERS, "join", "a third consumer joins each group", screen, Tone.GOOD)
            case Act.LEAVE:
                for group in self._groups:
                    group.let_one_leave()
                self._tell(Who.CONSUMERS, "leave", "a consumer leaves each group", screen)
        return True

    def tend(self, screen: Screen) -> None:
        if self._processors.kill_victim():
            self._tally.processor_kills += 1
            event = "kill -9 of a processor, its payments stored and not committed: another takes its id over"
            self._tell(Who.PROCESSORS, "kill -9", event, screen, Tone.BAD)
        for group in self._groups:
            if group.kill_victim():
                self._tally.member_kills += 1
                event = f"kill -9 of a consumer ({group.way}), its batch booked and not committed: another starts"
                self._tell(Who.CONSUMERS, "kill -9", event, screen, Tone.BAD)
            if group.find_sleeper():
                event = f"a consumer ({group.way}) falls asleep with a batch in hand"
                self._tell(Who.CONSUMERS, "sleeps", event, screen, Tone.WARNING)
            if group.wake_sleeper():
                event = f"it wakes ({group.way}) and does not know that its partitions are another's by now"
                self._tell(Who.CONSUMERS, "wakes", event, screen, Tone.WARNING)

    def end(self, screen: Screen) -> None:
        screen.tell("all processors and consumers leave, and the audit counts")
        for crew in (self._processors, *self._groups):
            crew.let_all_leave()
        for who in (Who.PRODUCER, Who.PROCESSORS, Who.CONSUMERS):
            self._chronicle.ends(who)
        self._tally.failures += [failure for sender in self._senders for failure in sender.load.failures]

    def _tell(self, who: Who, label: str, event: str, screen: Screen, tone: Tone = Tone.PLAIN) -> None:
        self._chronicle.note(who, label, tone)
        screen.tell(event)
