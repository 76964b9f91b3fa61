"""A whole broker in memory, its disk, and producers that transact, die and come back: what they were told is kept, and
held against what readers see in the end.

The broker is the real one below its sockets: requests and answers are bytes, timers and flushes are the test's. Its
disk can be full for some partitions, tear a write, and lose what was not synced. Every record names the transaction
that it is of; a transaction is one `Attempt`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from oncelog.log import cleaner
from tests.broker.support import Desk
from tests.sim.desk_client import DeskClient, Disk, NotAnsweredError
from tests.support.batches import read_batches
from tests.support.faulty_storage import SimulatedCrash
from tests.support.raw import API_KEYS, decode_response
from tests.support.requests import fetch
from tests.support.transactions import (
    READ_COMMITTED,
    RESTING,
    HandProducer,
    Place,
    end_offset,
    last_stable_offset,
    name_of,
    visible,
)

DATA = "/data"
TIMEOUT_MS = 60_000
IDS = ("mover", "shaker")
GROUP = "readers"
PLACES: list[Place] = [("orders", 0), ("orders", 1), ("bills", 0)]
SETTINGS = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "1"}
STORES = ["orders-0", "orders-1", "bills-0", "__transaction_state-0", "__transaction_state-1", "__consumer_offsets-0"]
"""Folders on the disk that may be full."""

REMEMBERED = 20
"""How many of the last requests may come again."""

MOST_ZOMBIES = 6
NOT_LOADED = ""

TRY_AGAIN = {
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "coordinator_not_available",
    "kafka_storage_error",
    "not_coordinator",
    "not_enough_replicas",
}
"""Nothing is settled by these, and a producer asks again."""

API_NAMES = {key: name for name, key in API_KEYS.items()}


@dataclass(eq=False)
class Attempt:
    """One transaction, as its producer knows it."""

    number: int
    transactional_id: str
    tried: set[tuple[Place, bytes]] = field(default_factory=set)
    stored: set[tuple[Place, bytes]] = field(default_factory=set)
    offset_tried: bool = False
    offset_stored: bool = False
    asked_to_commit: bool = False
    told: bool | None = None
    """The outcome that the producer was told."""


@dataclass(eq=False)
class Process:
    """A producer as an application runs it: one that does not know what became of a request asks again."""

    hand: HandProducer
    rank: int = -1
    """The higher one of two has taken the other's place."""
    attempt: Attempt | None = None
    unsettled: dict[Place, bytes] = field(default_factory=dict)
    """Batches that may be stored or not."""
    ending: bool | None = None
    """This outcome was asked for, or (aborted) is the only one left."""
    is_going_on: bool = False
    must_begin: bool = True

    @property
    def is_free(self) -> bool:
        """To write."""
        return not self.must_begin and not self.is_going_on and self.ending is None

    @property
    def may_commit(self) -> bool:
        attempt = self.attempt
        return attempt is not None and not self.unsettled and attempt.offset_tried == attempt.offset_stored


@dataclass(frozen=True)
class Sent:
    """A request that the network may deliver once more."""

    frame: bytes
    api: str
    version: int
    transactional_id: str
    rank: int
    is_modern: bool
    epoch: int
    takes_over: bool
    """It is an InitProducerId of one that begins."""


class World:
    def __init__(self, *, is_durable: bool) -> None:
        """`is_durable`: every answer waits for a flush, and the power may fail."""
        self.is_durable = is_durable
        self.disk = Disk()
        self.desk = self._open(None)
        for topic, partitions in (("orders", 2), ("bills", 1)):
            self.desk.create(topic, partitions)
        for key_type, key in ((0, GROUP), *((1, each) for each in IDS)):
            self.client.request("find_coordinator", 4, {"key_type": key_type, "coordinator_keys": [key]})
        self.client.sent.clear()
        self.attempts: list[Attempt] = []
        self.rank = dict.fromkeys(IDS, 0)
        self.processes = [self._new_process(IDS[0], True), self._new_process(IDS[0], False)]
        self.processes += [self._new_process(IDS[1], True), self._new_process(IDS[1], True)]
        self.zombies: list[Process] = []
        self.network: list[Sent] = []
        self.seen: dict[Place, list[bytes]] = {place: [] for place in PLACES}

    def _open(self, time_ms: int | None) -> Desk:
        flush = {"log_flush_interval_messages": "1"} if self.is_durable else {}
        desk = Desk(self.disk, DATA, **SETTINGS, **flush)
        desk.alarms.time_ms = time_ms or desk.alarms.time_ms
        self.client = DeskClient(desk)
        return desk

    def _new_process(self, transactional_id: str, is_modern: bool) -> Process:
        return Process(self._new_hand(transactional_id, is_modern))

    def _new_hand(self, transactional_id: str, is_modern: bool) -> HandProducer:
        return HandProducer(self.client, transactional_id, is_modern, now_ms=self.now_ms)

    def now_ms(self) -> int:
        return self.desk.alarms.time_ms

    # What processes do. `fate`: "heard"; "lost" is the answer; "hasty" is a process that does not wait for a flush;
    # "crash3" ends the broker with its third operation on the disk from here.

    def ask(self, process: Process, fate: str, request: Callable[[HandProducer], str]) -> str | None:
        """The answer, if it is heard; then the process knows what comes with it."""
        hand = process.hand.copy(client=self.client)
        if fate.startswith("crash"):
            self.disk.crash_at(self.disk.operations + int(fate.removeprefix("crash")), torn=True)
        self.client.is_hasty = fate == "hasty"
        try:
            answer = request(hand)
        except SimulatedCrash:
            self.restart()
            return None
        except NotAnsweredError:
            return None
        finally:
            self.disk.heal()
            self.client.is_hasty = False
            self._remember(process)
        if not process.must_begin and process.rank < self.rank[hand.transactional_id]:
            assert answer != "none", f"a zombie has succeeded: {self.network[-1]}"
        if fate != "heard":
            return None
        process.hand = hand
        return answer

    def _remember(self, process: Process) -> None:
        hand = process.hand
        for frame in self.client.sent:
            api_key, version = struct.unpack_from(">hh", frame, 4)
            who = hand.transactional_id, process.rank, hand.is_modern, hand.epoch
            self.network.append(Sent(frame, API_NAMES[api_key], version, *who, takes_over=process.must_begin))
        self.client.sent.clear()
        del self.network[:-REMEMBERED]

    def begin(self, process: Process, fate: str) -> None:
        """A process begins, or begins anew; as it was before, it may wake up once more."""
        if not process.must_begin:
            left = replace(process, hand=process.hand.copy(), unsettled=dict(process.unsettled))
            self.zombies = [*self.zombies[1 - MOST_ZOMBIES :], left]
        transactional_id = process.hand.transactional_id
        process.hand = self._new_hand(transactional_id, process.hand.is_modern)
        process.attempt, process.ending, process.is_going_on, process.must_begin = None, None, False, True
        process.unsettled.clear()

        def init(hand: HandProducer) -> str:
            told = hand.init(timeout_ms=TIMEOUT_MS)
            self.rank[transactional_id] += told == "none"
            return told

        if self.ask(process, fate, init) == "none":
            process.must_begin = False
            process.rank = self.rank[transactional_id]

    def go_on(self, process: Process, fate: str) -> None:
        """After an error, with what it has (KIP-360). What it wrote is aborted; it does nothing else before."""
        if process.must_begin or process.ending:
            return
        process.is_going_on = True
        process.attempt, process.ending = None, None
        process.unsettled.clear()
        told = self.ask(process, fate, lambda hand: hand.init(goes_on=True, timeout_ms=TIMEOUT_MS))
        if told == "none":
            process.is_going_on = False
        elif told is not None and told not in TRY_AGAIN:
            process.must_begin = True

    def write(self, process: Process, place: Place, fate: str) -> None:
        """A batch of one record; one that may be stored already goes again as it was."""
        if not process.is_free:
            return
        attempt = self._attempt(process)
        value = process.unsettled.get(place)
        if value is None:
            value = b"%d %s-%d %d" % (attempt.number, place[0].encode(), place[1], len(attempt.tried))
        attempt.tried.add((place, value))
        process.unsettled[place] = value

        def produce(hand: HandProducer) -> str:
            told = "none" if hand.is_modern else hand.add(place)[place]
            return hand.produce(place[0], value, partition=place[1]) if told == "none" else told

        told = self.ask(process, fate, produce)
        if told == "none":
            del process.unsettled[place]
            attempt.stored.add((place, value))
        elif told is not None and told not in TRY_AGAIN:
            process.ending = False

    def commit_offset(self, process: Process, fate: str) -> None:
        """The number of the transaction is the offset that it commits."""
        if not process.is_free:
            return
        attempt = self._attempt(process)
        attempt.offset_tried = True
        index = IDS.index(attempt.transactional_id)

        def commit(hand: HandProducer) -> str:
            told = "none" if hand.is_modern else hand.add_offsets(GROUP)
            return hand.commit_offsets(GROUP, ("orders", index, attempt.number))[0] if told == "none" else told

        told = self.ask(process, fate, commit)
        if told == "none":
            attempt.offset_stored = True
        elif told is not None and told not in TRY_AGAIN:
            process.ending = False

    def _attempt(self, process: Process) -> Attempt:
        if process.attempt is None:
            process.attempt = Attempt(len(self.attempts), process.hand.transactional_id)
            self.attempts.append(process.attempt)
        return process.attempt

    def end(self, process: Process, commit: bool, fate: str) -> None:
        """What was asked for once is asked for until it is answered."""
        attempt = process.attempt
        if process.must_begin or process.is_going_on or (attempt is None and not process.hand.is_modern):
            return
        if process.ending is None:
            process.ending = commit and process.may_commit
        commit = process.ending
        if attempt is not None:
            attempt.asked_to_commit |= commit
        told = self.ask(process, fate, lambda hand: hand.end(commit=commit))
        if told == "none":
            if attempt is not None:
                attempt.told = commit
            # By protocol 1 the numbers of batches of unknown fate are lost with them.
            process.must_begin = bool(process.unsettled) and not process.hand.is_modern
            process.attempt, process.ending = None, None
            process.unsettled.clear()
        elif told is not None and told not in TRY_AGAIN:
            process.must_begin = True

    # What happens to them

    def deliver_again(self, sent: Sent) -> None:
        """By protocol 1 nobody can tell a late request of a producer from a new one, as long as it has no successor."""
        if not sent.is_modern and sent.rank == self.rank[sent.transactional_id]:
            return
        before = self.transactions()[sent.transactional_id]
        self.client.send_bytes(sent.frame)
        _, answer = decode_response(sent.api, sent.version, self.client.receive_frame())
        self.client.sent.clear()
        after = self.transactions()[sent.transactional_id]
        if sent.api == "init_producer_id":
            self.rank[sent.transactional_id] += sent.takes_over and answer["error_code"] == 0
        elif before[0] == "Ongoing" and after[0] not in ("Ongoing", NOT_LOADED):
            assert sent.epoch == before[1], "a late request has ended a later transaction"

    def transactions(self) -> dict[str, tuple[str, int]]:
        """State and epoch of each id, as far as they are loaded."""
        found = dict.fromkeys(IDS, (NOT_LOADED, -1))
        for partition in self.desk.broker.transactions._loaded_partitions():
            for name, transaction in partition.coordinator.hard_state().items():
                found[name] = transaction.state.label, transaction.epoch
        return found

    def pass_time(self, ms: int) -> None:
        self.desk.alarms.pass_time(ms)
        self.desk.threads.run_all()

    def compact(self, after_ms: int) -> None:
        """The coordinators' logs, as far as all is decided in them. What only tells of an end goes in time."""
        now_ms = self.now_ms() + after_ms
        if self.disk.full or self.disk.broken:
            return
        for log in self.desk.broker.logs.logs.values():
            if not log.config.compacts:
                continue
            log.roll(self.now_ms())
            dirtiness = cleaner.measure(log, None, now_ms)
            if dirtiness.sources:
                folder = log.active_segment.path.rpartition("/")[0]
                cleaning = cleaner.plan(log, self.disk, folder, dirtiness, now_ms=now_ms)
                while (group := cleaning.clean_next()) is not None:
                    log.replace_segments(group.old, [group.new], now_ms)

    def restart(self, power_loss_seed: int | None = None) -> None:
        """The broker is dead; another begins with what the disk has."""
        time_ms = self.now_ms()
        self.disk = self.disk.survivor(power_loss_seed)
        self.desk = self._open(time_ms)
        self.desk.broker.resume_groups()
        self.desk.broker.resume_transactions()
        self.pass_time(0)

    # What must hold

    def replays_are_the_same(self) -> None:
        """Other coordinators, that know the logs alone, know what those know that answer."""
        for coordination in (self.desk.broker.transactions, self.desk.broker.coordination):
            for partition in coordination._loaded_partitions():
                other = coordination._new_partition(partition.log.topic_partition.partition, partition.log)
                while other.loading is not None and other.loading.step():
                    pass
                assert other.coordinator.hard_state() == partition.coordinator.hard_state()

    def read(self) -> None:
        """Once seen, always seen; and nothing that nobody asked to commit, or that was aborted."""
        for place in PLACES:
            now, known = self._read(place), len(self.seen[place])
            assert now[:known] == self.seen[place]
            assert len(set(now)) == len(now), "a record is stored twice"
            for value in now[known:]:
                attempt = self.attempts[int(value.split()[0])]
                assert (place, value) in attempt.tried
                assert attempt.asked_to_commit, f"nobody wanted to commit {value!r}"
                assert attempt.told is not False, f"{value!r} was aborted"
            self.seen[place] = now

    def _read(self, place: Place) -> list[bytes]:
        topic, index = place
        values: list[bytes] = []
        offset, end = 0, last_stable_offset(self.client, topic, index)
        if end < 0 and self.disk.broken:
            return self.seen[place]  # nobody can read it at present
        while offset < end:
            answer = fetch(self.client, topic, offset, partition=index, isolation_level=READ_COMMITTED, max_wait=0)
            values += [value for value in visible(answer) if value is not None]
            *_, last = read_batches(answer["records"])
            offset = last.base_offset + last.last_offset_delta + 1
        self.client.sent.clear()
        return values

    def settle(self) -> None:
        """All obstacles go away, and time passes. A log whose flush has failed is not used before a restart."""
        self.disk.full.clear()
        if self.disk.broken:
            self.restart()
        for _ in range(3):
            self.pass_time(TIMEOUT_MS)
        listed = self.client.request("list_transactions", 2, {})
        assert {each["transaction_state"] for each in listed["transaction_states"]} <= set(RESTING)
        for topic, index in (*PLACES, ("__consumer_offsets", 0)):
            assert last_stable_offset(self.client, topic, index) == end_offset(self.client, topic, index)
        self.read()
        for attempt in self.attempts:
            self._is_all_or_nothing(attempt)
        for transactional_id in IDS:
            self._offset_is_the_last_committed(transactional_id)
        self.replays_are_the_same()

    def _is_committed(self, attempt: Attempt) -> bool | None:
        """None: nobody can tell from the records, as there are none."""
        if attempt.told is not None:
            return attempt.told
        if not attempt.asked_to_commit:
            return False
        return bool(self._seen_of(attempt)) if attempt.stored else None

    def _seen_of(self, attempt: Attempt) -> set[tuple[Place, bytes]]:
        return {each for each in attempt.tried if each[1] in self.seen[each[0]]}

    def _is_all_or_nothing(self, attempt: Attempt) -> None:
        seen = self._seen_of(attempt)
        if self._is_committed(attempt):
            assert seen >= attempt.stored, f"records of a committed transaction are missing: {attempt}"
        else:
            assert not seen, f"records of an aborted transaction are visible: {attempt}"

    def _offset_is_the_last_committed(self, transactional_id: str) -> None:
        own = [each for each in self.attempts if each.transactional_id == transactional_id]
        certain = [each.number for each in own if each.offset_stored and self._is_committed(each)]
        possible = {each.number for each in own if each.offset_tried and self._is_committed(each) is not False}
        offset = self._offset(IDS.index(transactional_id))
        assert offset in possible | {-1}
        assert offset >= max(certain, default=-1)

    def _offset(self, index: int) -> int:
        topics = [{"name": "orders", "partition_indexes": [index]}]
        asked = {"groups": [{"group_id": GROUP, "topics": topics}], "require_stable": True}
        (found,) = self.client.request("offset_fetch", 8, asked)["groups"]
        ((each,),) = [named["partitions"] for named in found["topics"]]
        assert name_of(each["error_code"]) == "none", "an offset is still pending"
        return int(each["committed_offset"])
