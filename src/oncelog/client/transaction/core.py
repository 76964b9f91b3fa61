"""A producer's transactions, without I/O: which phase they are in, and the conversation with their coordinator.

Owns the phase, the identity that the coordinator gave, and what is part of the open transaction. Never touches a
record: it tells the sender which partitions may be sent to (`may_send`), hears which records failed (`record_failed`),
and asks it to refuse what waits when the transaction is lost.

**An outcome is never guessed.** A commit or abort that was asked for goes on until the coordinator has answered it,
however often its answer is lost, and whoever stopped waiting can come back for it. One request is under way at a time.

**Two protocols.** By the first one each partition is added before records go there, and the epoch stays; after an abort
that left records of unknown fate behind, a new epoch is asked for. By the second one (KIP-890) leaders add partitions
themselves, and every end of a transaction brings the next epoch, so that nothing late can ever join another one.

Methods that begin with `ask_`, and `begin`, are called by users' threads, one at a time; all others by the sender's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.idempotence import Idempotence, Identity
from oncelog.client.membership.coordinator_link import COURTESY_MS
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event
from oncelog.client.transaction import requests
from oncelog.client.transaction.command import Command, CommitOffsets, Kind
from oncelog.client.transaction.completion import Completion
from oncelog.client.transaction.conversation import NONE_NAMED, Conversation, Done, Refused
from oncelog.client.transaction.model import (
    WHY_NOT_BEGIN,
    WHY_NOT_OPEN,
    Phase,
    RecordFlow,
    TransactionSettings,
    not_begun,
)
from oncelog.client.transaction.prepared import PreparedTransaction, SharedTransaction
from oncelog.client.transaction.unheard_end import tell_unheard_end
from oncelog.client.transaction.verdict import TransactionVerdict, is_fatal_for_records, is_fencing
from oncelog.client.transaction_errors import (
    AbortNeeded,
    TransactionalProducerFenced,
    TransactionFailed,
    TransactionMisuse,
)
from oncelog.errors import KafkaError, UnknownServerError
from oncelog.types import TopicPartition
from oncelog.wire.codec import Message

FEATURE = "transaction.version"


class TransactionCore:
    def __init__(
        self,
        settings: TransactionSettings,
        network: Network,
        accumulator: Accumulator,
        idempotence: Idempotence,
        flow: RecordFlow,
        jitter: Callable[[], float],
    ) -> None:
        self.phase = Phase.NEW
        self.abort_reason: AbortNeeded | None = None
        """Why the open transaction cannot be committed."""
        self.fatal: TransactionFailed | None = None
        self.uses_protocol_2 = False
        """By which protocol the open transaction, or the next one, is ended."""
        self._next_uses_protocol_2 = False
        self.prepared: PreparedTransaction | None = None
        self._settings = settings
        self._network = network
        self._accumulator = accumulator
        self._idempotence = idempotence
        self._flow = flow
        self._completion = Completion()
        self._conversation = Conversation(settings, network, jitter, self._refused, self._completion.contended)
        self._commands: deque[Command] = deque()
        self._unheard: Command | None = None
        """What a user asked for, and has not heard the end of yet."""
        self._flush: Command | None = None
        """Somebody waits until nothing of the transaction is under way any more, but for its end."""
        self._is_swept = False
        """What waited in the lost transaction was refused."""
        self._is_begun = False
        """Brokers may know of the open transaction."""
        self._has_ended = False
        """The coordinator has ended it; only the next identity is missing."""
        self._closes_from_ms: int | None = None
        self._wanted: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        accumulator.suspend(not_begun())

    # --- what users' threads call -------------------------------------------------------------------------------

    def ask_init(self, on_end: Callable[[], None]) -> Command:
        self._check_not_fatal()
        if self._unheard is not None and self._unheard.kind is Kind.INIT:
            return self._join(self._unheard, on_end)
        if self.phase is not Phase.NEW or self._commands:
            raise TransactionMisuse("init_transactions() is called once, before the first begin()")
        return self._submit(Command(Kind.INIT, on_end))

    def begin(self) -> None:
        self._check_not_fatal()
        if self._unheard is not None:
            raise TransactionMisuse(f"call {self._unheard.kind.value} again first: its outcome was not heard yet")
        if self.phase is not Phase.READY:
            raise TransactionMisuse(f"begin() now: {WHY_NOT_BEGIN[self.phase]}")
        self.phase = Phase.OPEN
        self._accumulator.resume()

    def share(self) -> SharedTransaction:
        """Others write the records, and somebody else ends it."""
        self._check_open(Kind.SHARE)
        identity = self._idempotence.identity
        assert identity is not None
        if self._accumulator.incomplete:
            raise TransactionMisuse("share() comes before the first record")
        self._accumulator.suspend(TransactionMisuse("the transaction is shared: others write into it"))
        self.phase = Phase.PREPARED
        return SharedTransaction(self._settings.transactional_id, *identity, self.uses_protocol_2)

    def join(self, shared: SharedTransaction) -> None:
        """In the place of `ask_init` and `begin`: the transaction was begun elsewhere."""
        self._check_not_fatal()
        if self.phase is not Phase.NEW or self._commands:
            raise TransactionMisuse("join() is called once, in the place of init_transactions() and begin()")
        self._idempotence.renew(Identity(shared.producer_id, shared.producer_epoch), self._flow.all_queues())
        self._next_uses_protocol_2 = shared.uses_protocol_2
        self._get_ready()
        self.begin()

    def ask_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, on_end: Callable[[], None]
    ) -> Command:
        self._check_open(Kind.OFFSETS)
        if self.abort_reason is not None:
            raise self.abort_reason.with_traceback(None)
        command = CommitOffsets(offsets, group, on_end)
        if not offsets:
            command.end()
            return command
        return self._submit(command)

    def ask_end(self, kind: Kind, on_end: Callable[[], None]) -> Command:
        """COMMIT, ABORT or PREPARE. Asked again after a wait that was too short, the same one goes on."""
        if self._unheard is not None and self._unheard.kind is kind:
            return self._join(self._unheard, on_end)
        if self._unheard is not None and not (kind is Kind.ABORT and self.abort_reason is not None):
            raise TransactionMisuse(f"{kind.value} now: call {self._unheard.kind.value} again to hear how it ended")
        self._check_open(kind)
        if kind is not Kind.ABORT:
            if self.abort_reason is not None:
                raise self.abort_reason.with_traceback(None)
            self._accumulator.suspend(TransactionMisuse("the transaction is being ended: call begin() for the next"))
        self.phase = Phase.ENDING
        return self._submit(Command(kind, on_end))

    def ask_flush(self, on_end: Callable[[], None]) -> Command:
        """Until all of the transaction that is being ended is stored. How it ends is told to who asked for the end."""
        command = self._flush = Command(Kind.FLUSH, on_end)
        return command

    def heard(self, command: Command) -> None:
        """The user knows how it ended."""
        if self._unheard is command:
            self._unheard = None

    def unheard(self, command: Command) -> None:
        """The user does not wait any longer."""
        if command.kind not in (Kind.OFFSETS, Kind.FLUSH):
            self._unheard = command

    @property
    def why_slow(self) -> str:
        """For whoever does not wait any longer."""
        return self._conversation.why_slow

    def _submit(self, command: Command) -> Command:
        self._unheard = None
        self._commands.append(command)
        return command

    def _join(self, command: Command, on_end: Callable[[], None]) -> Command:
        command.on_end = on_end
        if command.has_ended:
            on_end()
        return command

    def _check_not_fatal(self) -> None:
        if self.fatal is not None:
            raise self.fatal.with_traceback(None)

    def _check_open(self, kind: Kind) -> None:
        self._check_not_fatal()
        if self.phase is not Phase.OPEN:
            raise TransactionMisuse(f"{kind.value} now: {WHY_NOT_OPEN[self.phase]}")

    # --- what the sender calls ----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return bool(self._commands) and self.fatal is None

    def wait_until_ms(self, deadline_ms: int, now_ms: int) -> int:
        """For a producer that is being closed: until when what was asked for is worth waiting for, or 0. A commit is
        until the deadline. To be aborted a transaction need not wait for a coordinator that is away: it is by whoever
        has the transactional id next, or in time by itself."""
        if not self.is_busy:
            return 0
        self._closes_from_ms = now_ms if self._closes_from_ms is None else self._closes_from_ms
        hopeless_ms = self._conversation.hopeless_ms(now_ms)
        is_courtesy = not any(command.kind in (Kind.COMMIT, Kind.PREPARE) for command in self._commands)
        if hopeless_ms is None or not is_courtesy:
            return deadline_ms
        return min(deadline_ms, max(hopeless_ms, self._closes_from_ms + COURTESY_MS))

    def closed(self) -> None:
        """The producer has ended."""
        if self.is_busy and not self._is_unknown_to_brokers:
            tell_unheard_end({command.kind for command in self._commands}, self._settings, self.why_slow)

    @property
    def is_lost(self) -> bool:
        """Nothing more of the open transaction needs to be sent."""
        if self.abort_reason is not None or self.fatal is not None:
            return True
        return self._is_aborting

    @property
    def _is_aborting(self) -> bool:
        return bool(self._commands) and self._commands[-1].kind is Kind.ABORT

    def may_send(self, queue: PartitionQueue, now_ms: int) -> bool:
        if self.is_lost or self.phase not in (Phase.OPEN, Phase.ENDING):
            return False
        if self.uses_protocol_2:
            if self._completion.is_serial and self._commands and self._commands[0].kind is Kind.OFFSETS:
                return False
            return now_ms >= self._completion.look_until_ms
        partition = TopicPartition(queue.topic, queue.index)
        if partition in self._added:
            return True
        self._wanted.add(partition)
        return False

    def sends(self, now_ms: int) -> str:
        """A request with records of the transaction leaves; returns its transactional id."""
        self._is_begun = True
        self._completion.began(now_ms)
        return self._settings.transactional_id

    def max_produce_version(self) -> int | None:
        """A leader takes a newer version as the sign of protocol 2."""
        return None if self.uses_protocol_2 else requests.LAST_PRODUCE_BY_PROTOCOL_1

    def records_stored(self, now_ms: int) -> None:
        self._completion.entered(now_ms)

    def records_contended(self) -> None:
        self._completion.contended()

    def record_failed(self, error: Exception) -> None:
        """A record that was accepted, or was on its way to be, cannot be stored."""
        if self.is_lost or self.phase not in (Phase.OPEN, Phase.ENDING) or isinstance(error, TransactionMisuse):
            return
        if is_fatal_for_records(error):
            self._fail(error)
        else:
            self._lose(error)

    def handle(self, event: Event, now_ms: int) -> None:
        self._conversation.handle(event, now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Asks what is to be asked. Returns when it wants to be polled again, if nothing happens before."""
        if self.fatal is None and self._conversation.refusal is not None:
            self._fail(self._conversation.refusal)
        if self._flush is not None and self._is_stored:
            flush, self._flush = self._flush, None
            flush.end()
        if self.fatal is not None or self._conversation.is_waiting:
            return None
        if self.is_lost and not self._is_swept:
            self._sweep()
        if self._completion.wants_look(now_ms, is_needed=self.phase is not Phase.READY):
            return self._look(now_ms)
        question = self._next_question()
        return None if question is None else self._ask_when_ready(question, now_ms)

    def _look(self, now_ms: int) -> int:
        """Whether the last transaction is complete."""
        link = self._conversation.ready_to_ask(None, now_ms)
        if not isinstance(link, int):
            self._conversation.look(link, requests.look(self._settings.transactional_id), now_ms, self._looked)
        return self._completion.look_until_ms

    def _looked(self, answer: Message | None) -> None:
        self._completion.looked("" if answer is None else requests.state_seen(answer))

    def _sweep(self) -> None:
        self._is_swept = True
        self._wanted.clear()
        self._accumulator.suspend(self._why_lost())
        self._flow.refuse_waiting(self._why_lost())

    @property
    def _is_stored(self) -> bool:
        """Nothing is under way, but perhaps the end of the transaction."""
        if self.phase is not Phase.ENDING or self.is_lost:
            return True
        return bool(self._commands) and self._commands[0].kind is not Kind.OFFSETS and self._flow.is_quiet()

    # --- what to ask --------------------------------------------------------------------------------------------

    def _next_question(self) -> requests.Question | None:
        if self._wanted and not self.is_lost:
            return requests.ADD_PARTITIONS
        self._end_what_needs_no_question()
        if not self._commands:
            return None
        command = self._commands[0]
        if isinstance(command, CommitOffsets):
            is_joined = self.uses_protocol_2 or command.is_group_added
            return requests.COMMIT_OFFSETS if is_joined else requests.ADD_OFFSETS
        if command.kind is Kind.INIT or self._has_ended:
            return requests.INIT
        return requests.END if self._may_end(command) else None

    def _end_what_needs_no_question(self) -> None:
        while self._commands:
            command = self._commands[0]
            if self.is_lost and command.kind not in (Kind.ABORT, Kind.INIT):
                self._not_ended(command)
            elif command.kind is Kind.PREPARE and self._may_end(command):
                self._prepare(command)
            elif command.kind in (Kind.COMMIT, Kind.ABORT) and self._is_unknown_to_brokers and self._may_end(command):
                self._completed(None)
            else:
                return

    @property
    def _is_unknown_to_brokers(self) -> bool:
        return not self._is_begun and not self._has_ended

    def _may_end(self, command: Command) -> bool:
        """Every record has its result, or, for an abort, none can still be written."""
        return not self._flow.is_in_flight() if command.kind is Kind.ABORT else self._flow.is_quiet()

    def _ask_when_ready(self, question: requests.Question, now_ms: int) -> int | None:
        group_id = None
        if question is requests.COMMIT_OFFSETS:
            command = self._commands[0]
            assert isinstance(command, CommitOffsets)
            group_id = command.group.group_id
        link = self._conversation.ready_to_ask(group_id, now_ms)
        if isinstance(link, int):
            return link
        if question is requests.COMMIT_OFFSETS:
            self._completion.began(now_ms)
        body, done = self._prepared_question(question)
        self._conversation.ask(link, question, body, now_ms, done, by_protocol_2=self.uses_protocol_2)
        return None

    def _prepared_question(self, question: requests.Question) -> tuple[Message, Done]:
        """What to ask, and what to do with a good answer."""
        name, identity = self._settings.transactional_id, self._idempotence.identity
        if question is requests.INIT:
            had = identity if self._has_ended else None
            return requests.init(name, self._settings.transaction_timeout_ms, had), self._initialised
        assert identity is not None
        if question is requests.ADD_PARTITIONS:
            partitions = frozenset(self._wanted)
            return requests.add_partitions(name, identity, partitions), partial(self._partitions_added, partitions)
        command = self._commands[0]
        if not isinstance(command, CommitOffsets):
            return requests.end(name, identity, commit=command.kind is Kind.COMMIT), self._ended
        if question is requests.ADD_OFFSETS:
            return requests.add_offsets(name, identity, command.group.group_id), partial(self._group_added, command)
        self._is_begun = True
        body = requests.commit_offsets(name, identity, command.group, command.offsets)
        return body, partial(self._offsets_committed, command)

    # --- answers ------------------------------------------------------------------------------------------------

    def _refused(self, verdict: TransactionVerdict, error: KafkaError, partitions: Refused) -> None:
        """An abort that was refused would be refused again, and before the first transaction there is none."""
        can_abort = not (self._commands and self._commands[0].kind in (Kind.ABORT, Kind.INIT))
        if verdict is TransactionVerdict.ABORT and can_abort:
            self._lose(error, partitions)
        else:
            self._fail(error)

    def _partitions_added(self, partitions: frozenset[TopicPartition], *_: object) -> None:
        self._wanted -= partitions
        self._added |= partitions
        self._is_begun = True

    def _group_added(self, command: CommitOffsets, *_: object) -> None:
        command.is_group_added = True
        self._is_begun = True

    def _offsets_committed(self, command: CommitOffsets, _: Message, __: Answered, now_ms: int) -> None:
        self._completion.entered(now_ms)
        self._end_command(command)

    def _initialised(self, answer: Message, event: Answered, now_ms: int) -> None:
        self._learn_protocol(event, now_ms)
        identity = self._identity_in(answer)
        if identity is None:
            return
        if self._has_ended:
            self._completed(identity)
            return
        self._idempotence.renew(identity, self._flow.all_queues())
        self._get_ready()
        self._end_command(self._commands[0])

    def _ended(self, answer: Message, event: Answered, now_ms: int) -> None:
        self._completion.ended(now_ms - event.sent_ms, now_ms)
        self._learn_protocol(event, now_ms)
        if self.uses_protocol_2:
            identity = self._identity_in(answer)
            if identity is not None:
                self._completed(identity)
            return
        self._has_ended = True
        if self._idempotence.bump_reason is None:  # else numbers were lost, or a record may be written late
            self._completed(None)

    def _identity_in(self, answer: Message) -> Identity | None:
        """The one to go on with; None, and the end of this producer, if the coordinator names none."""
        identity = Identity(answer["producer_id"], answer["producer_epoch"])
        if identity.is_valid:
            return identity
        self._fail(UnknownServerError(f"the coordinator answered with producer id {identity[0]}, epoch {identity[1]}"))
        return None

    # --- ends ---------------------------------------------------------------------------------------------------

    def _prepare(self, command: Command) -> None:
        identity = self._idempotence.identity
        assert identity is not None
        if self._is_begun:
            self.prepared = PreparedTransaction(self._settings.transactional_id, *identity)
        self.phase = Phase.PREPARED if self._is_begun else Phase.OPEN
        if not self._is_begun:
            self._accumulator.resume()
        self._end_command(command)

    def _completed(self, identity: Identity | None) -> None:
        """The transaction has its outcome. Without a new identity the old one goes on."""
        if identity is not None:
            self._idempotence.renew(identity, self._flow.all_queues())
        self._wanted.clear()
        self._added.clear()
        self.abort_reason = None
        self._is_swept = self._is_begun = self._has_ended = False
        self._get_ready()
        self._end_command(self._commands[0])

    def _not_ended(self, command: Command) -> None:
        """The user hears it, and the transaction is open until the user aborts it."""
        if command.kind in (Kind.COMMIT, Kind.PREPARE):
            self.phase = Phase.OPEN
        self._end_command(command, self._why_lost())

    def _why_lost(self) -> AbortNeeded:
        return self.abort_reason or AbortNeeded("the transaction is being aborted")

    def _end_command(self, command: Command, error: Exception | None = None) -> None:
        self._commands.remove(command)
        command.end(error)

    def _lose(self, error: Exception, partitions: Refused = NONE_NAMED) -> None:
        lost = AbortNeeded(f"the transaction cannot be committed: {_sentence(error)}. Call abort(), then begin again")
        lost.__cause__ = error
        lost.refused = partitions
        self.abort_reason = self.abort_reason or lost

    def _fail(self, error: Exception) -> None:
        transactional_id = self._settings.transactional_id
        if is_fencing(error):
            self.fatal = TransactionalProducerFenced(
                f"another producer with the transactional id {transactional_id!r} has started, or a transaction of this"
                f" one took longer than transaction.timeout.ms ({self._settings.transaction_timeout_ms}) and was"
                f" aborted: {_sentence(error)}. Close this producer; if no other one shall work, make a new one"
            )
        else:
            self.fatal = TransactionFailed(
                f"the producer with the transactional id {transactional_id!r} cannot go on: {_sentence(error)}."
                " Close it; what was not committed is aborted"
            )
        self.fatal.__cause__ = error
        self._conversation.end()
        self._accumulator.suspend(self.fatal)
        while self._commands:
            self._end_command(self._commands[0], self.fatal)
        self._flow.give_up(self.fatal)

    def _learn_protocol(self, event: Answered, now_ms: int) -> None:
        """For the next transaction: one is ended by the protocol that it was begun with."""
        if self._network.is_ready(event.node_id, now_ms):
            features = self._network.features(event.node_id)
            self._next_uses_protocol_2 = features.get(FEATURE, 0) >= requests.PROTOCOL_2

    def _get_ready(self) -> None:
        self._accumulator.suspend(not_begun())
        self.uses_protocol_2 = self._idempotence.is_strict = self._next_uses_protocol_2
        self.phase = Phase.READY


def _sentence(error: Exception) -> str:
    """Without its full stop."""
    return str(error).rstrip(".")
