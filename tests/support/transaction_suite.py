"""What holds for transactions of every client, as tests that a module inherits: it has a fixture `client`, which says
how its client is told to do things. What a reader may see is read by hand, what the client itself reads by the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import pytest

from tests.support.confluent import create_topic
from tests.support.groups import await_coordinator
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import (
    HandProducer,
    await_transactions,
    committed,
    end_offset,
    last_stable_offset,
    name_of,
    state_at_rest,
    uncommitted,
)

PARTITIONS = 2
MANY = 500
"""Records of a large transaction; clients are told to make batches of at most a few kilobytes."""
BATCH_BYTES = 2_048
LONG_TIMEOUT_MS = 60_000

Seen = list[list[bytes | None]]
"""The values of each partition."""


class Refused(Exception):
    """The client raised an error: its name as the client has it."""


class TransactionalProducer(Protocol):
    """A producer with a transactional id, ready to begin. What the client raises comes as `Refused`."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Returns when all of them are stored."""

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class TransactionalClient(Protocol):
    codecs: tuple[str, ...]
    shortest_timeout_ms: int
    fenced: tuple[str, ...]
    """The names that it has for this: a successor has taken over."""
    overdue: tuple[str, ...]
    """And for this: the transaction that it wants to commit took too long."""

    def producer(self, transactional_id: str, *, timeout_ms: int, codec: str) -> TransactionalProducer: ...

    def read(self, topic: str, partition: int, last: bytes, *, isolation: str) -> list[bytes]:
        """The partition from its beginning to the record with that value."""


class Stage:
    """A topic, and producers of one client that write to it; what they leave open is closed at the end."""

    def __init__(self, address: tuple[str, int], client: TransactionalClient, topic: str) -> None:
        self.topic = topic
        self.group = f"group-of-{topic}"
        self._transactional_id = f"writes-{topic}"
        self._client = client
        self._raw = RawClient(address)
        self._made: list[TransactionalProducer] = []
        await_transactions(self._raw)
        await_coordinator(self._raw, self.group)

    def producer(
        self, transactional_id: str = "", *, timeout_ms: int = LONG_TIMEOUT_MS, codec: str = "none"
    ) -> TransactionalProducer:
        """Of the topic's own transactional id, unless another is named."""
        chosen = transactional_id or self._transactional_id
        self._made.append(self._client.producer(chosen, timeout_ms=timeout_ms, codec=codec))
        return self._made[-1]

    def fence(self) -> None:
        """Whoever writes under the topic's own transactional id is a zombie from here on, and its transaction over."""
        HandProducer(self._raw, self._transactional_id).begun()
        self.await_stable()

    def left_open(self, value: bytes, timeout_ms: int) -> TransactionalProducer:
        """A producer whose transaction will take longer than it may; on a slow machine the first record takes that long
        already, which is refused, and the next try has more time."""
        for longer in (1, 8):
            with suppress(Refused):
                return self._left_open(value, longer * timeout_ms)
        return self._left_open(value, 64 * timeout_ms)

    def _left_open(self, value: bytes, timeout_ms: int) -> TransactionalProducer:
        producer = self.producer(timeout_ms=timeout_ms)
        producer.begin()
        producer.send(self.topic, 0, [value])
        return producer

    def close(self) -> None:
        for producer in self._made:
            producer.close()
        self._raw.close()

    def committed(self) -> Seen:
        return [committed(self._raw, self.topic, index) for index in range(PARTITIONS)]

    def uncommitted(self) -> Seen:
        return [uncommitted(self._raw, self.topic, index) for index in range(PARTITIONS)]

    def stable(self) -> list[int]:
        return [last_stable_offset(self._raw, self.topic, index) for index in range(PARTITIONS)]

    def ends(self) -> list[int]:
        return [end_offset(self._raw, self.topic, index) for index in range(PARTITIONS)]

    def await_stable(self, *, at: Sequence[int] | None = None) -> None:
        """The last stable offset reaches the end: a commit may be answered before its markers are written."""
        eventually(lambda: self.stable() == list(at or self.ends()), f"stable to the end {at}, not {self.stable()}")

    def offset(self, *, require_stable: bool) -> tuple[str, int]:
        """Error and offset that the group has for the first partition; -1 if it has none."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        asked = {"groups": [{"group_id": self.group, "topics": topics}], "require_stable": require_stable}
        (found,) = self._raw.request("offset_fetch", 8, asked)["groups"]
        ((first,),) = [topic["partitions"] for topic in found["topics"]]
        return name_of(first["error_code"]), first["committed_offset"]

    def await_offset(self, wanted: int) -> None:
        def settled() -> bool:
            return self.offset(require_stable=True) == ("none", wanted)

        eventually(settled, f"offset {wanted}")
        state_at_rest(self._raw, self._transactional_id)  # not every client asks again when it is told to wait


class TransactionSuite:
    """A module's class inherits from it, and nothing else is needed."""

    pytestmark = pytest.mark.on_both_brokers

    @pytest.fixture
    def stage(
        self, broker: BrokerProcess, client: TransactionalClient, new_topic: Callable[[], str]
    ) -> Iterator[Stage]:
        topic = new_topic()
        create_topic(broker, topic, partitions=PARTITIONS)
        stage = Stage(broker.address, client, topic)
        yield stage
        stage.close()

    def test_all_or_nothing(self, stage: Stage, client: TransactionalClient) -> None:
        """Over two partitions; the client's own consumer sees what it should in both isolation levels."""
        producer = stage.producer()
        producer.begin()
        producer.send(stage.topic, 0, [b"a", b"b"])
        producer.send(stage.topic, 1, [b"c"])
        assert stage.uncommitted() == [[b"a", b"b"], [b"c"]]
        assert (stage.committed(), stage.stable()) == ([[], []], [0, 0])
        producer.commit()
        stage.await_stable(at=[3, 2])
        assert stage.committed() == [[b"a", b"b"], [b"c"]]
        producer.begin()
        producer.send(stage.topic, 0, [b"never"])
        producer.send(stage.topic, 1, [b"never"])
        producer.abort()
        stage.await_stable(at=[5, 4])
        assert stage.committed() == [[b"a", b"b"], [b"c"]]
        producer.begin()
        producer.send(stage.topic, 0, [b"end"])
        producer.commit()
        stage.await_stable(at=[7, 4])
        assert client.read(stage.topic, 0, b"end", isolation="read_committed") == [b"a", b"b", b"end"]
        assert client.read(stage.topic, 0, b"end", isolation="read_uncommitted") == [b"a", b"b", b"never", b"end"]

    def test_an_open_transaction_holds_back_what_follows(self, stage: Stage) -> None:
        slow, quick = stage.producer(f"slow-{stage.topic}"), stage.producer(f"quick-{stage.topic}")
        slow.begin()
        slow.send(stage.topic, 0, [b"slow"])
        quick.begin()
        quick.send(stage.topic, 0, [b"quick"])
        quick.send(stage.topic, 1, [b"beside"])
        quick.commit()
        eventually(lambda: stage.ends() == [3, 2], "the markers of the quick one")
        stage.await_stable(at=[0, 2])
        assert stage.committed() == [[], [b"beside"]]
        slow.abort()
        stage.await_stable(at=[4, 2])
        assert stage.committed() == [[b"quick"], [b"beside"]]

    def test_empty_transactions(self, stage: Stage) -> None:
        """They leave nothing in the log, and nothing that is in the way of the next."""
        producer = stage.producer()
        for end in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            end()
        assert stage.ends() == [0, 0]
        producer.begin()
        producer.send(stage.topic, 0, [b"a"])
        producer.commit()
        stage.await_stable(at=[2, 0])

    def test_many_batches_of_every_codec(self, stage: Stage, client: TransactionalClient) -> None:
        """Large transactions, of which every other one is aborted."""
        written: list[bytes] = []
        for codec in client.codecs:
            producer = stage.producer(f"{codec}-{stage.topic}", codec=codec)
            for end in (producer.abort, producer.commit):
                values = [b"%s %s %d" % (codec.encode(), end.__name__.encode(), n) * 2 for n in range(MANY)]
                producer.begin()
                producer.send(stage.topic, 0, values)
                end()
                written += values
        stage.await_stable()
        assert client.read(stage.topic, 0, written[-1], isolation="read_uncommitted") == written
        kept = [value for value in written if b"commit" in value]
        assert client.read(stage.topic, 0, written[-1], isolation="read_committed") == kept

    def test_a_successor_ends_what_was_open(self, stage: Stage, client: TransactionalClient) -> None:
        """And what the successor has open is none of its predecessor's business."""
        first = stage.producer()
        first.begin()
        first.send(stage.topic, 0, [b"left open"])
        second = stage.producer()
        stage.await_stable(at=[2, 0])
        second.begin()
        second.send(stage.topic, 0, [b"of the successor"])
        with pytest.raises(Refused) as refused:
            first.commit()
        assert str(refused.value) in client.fenced
        assert (stage.stable(), stage.ends()) == ([2, 0], [3, 0])
        second.commit()
        stage.await_stable(at=[4, 0])
        assert stage.committed() == [[b"of the successor"], []]

    def test_a_zombie_is_refused_at_each_call(self, stage: Stage, client: TransactionalClient) -> None:
        """Whichever call it makes first after it was fenced fails, and so does whatever it tries to write later."""
        writes: list[Callable[[TransactionalProducer], None]] = [
            lambda zombie: zombie.send(stage.topic, 0, [b"late"]),
            lambda zombie: zombie.send(stage.topic, 1, [b"late, elsewhere"]),
            lambda zombie: zombie.send_offsets(stage.group, stage.topic, {0: 1}),
        ]
        ends: list[Callable[[TransactionalProducer], None]] = [
            lambda zombie: zombie.commit(),
            lambda zombie: zombie.abort(),
        ]
        for call in (*writes, *ends):
            zombie = stage.producer()
            zombie.begin()
            zombie.send(stage.topic, 0, [b"open"])
            stage.fence()
            with pytest.raises(Refused) as refused:
                call(zombie)
            assert str(refused.value) in client.fenced
            for write in writes:
                with pytest.raises(Refused):
                    write(zombie)
        assert stage.ends() == stage.stable() == [2 * len(writes + ends), 0], "of each a record and a marker"
        assert stage.committed() == [[], []]
        assert stage.offset(require_stable=True) == ("none", -1)

    def test_a_transaction_that_takes_too_long_is_aborted(self, stage: Stage, client: TransactionalClient) -> None:
        producer = stage.left_open(b"too slow", client.shortest_timeout_ms)
        eventually(lambda: stage.stable() == stage.ends(), "an end of it that nobody asked for")
        with pytest.raises(Refused) as refused:
            producer.commit()
        assert str(refused.value) in client.overdue
        successor = stage.producer()
        successor.begin()
        successor.send(stage.topic, 0, [b"in time"])
        successor.commit()
        stage.await_stable()
        assert stage.committed() == [[b"in time"], []]


class OffsetSuite(TransactionSuite):
    """For clients that commit offsets of a group by its name."""

    def test_offsets_count_when_the_transaction_is_committed(self, stage: Stage) -> None:
        producer = stage.producer()
        producer.begin()
        producer.send(stage.topic, 1, [b"made of five"])
        producer.send_offsets(stage.group, stage.topic, {0: 5})
        assert stage.offset(require_stable=False) == ("none", -1)
        assert stage.offset(require_stable=True) == ("unstable_offset_commit", -1)
        producer.commit()
        stage.await_offset(5)
        stage.await_stable()
        assert stage.committed() == [[], [b"made of five"]]
        producer.begin()
        producer.send_offsets(stage.group, stage.topic, {0: 9})
        assert stage.offset(require_stable=False) == ("none", 5)
        producer.abort()
        stage.await_offset(5)
        producer.begin()
        producer.send_offsets(stage.group, stage.topic, {0: 7})
        producer.commit()
        stage.await_offset(7)
