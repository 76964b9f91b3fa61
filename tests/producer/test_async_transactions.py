"""The end of a transaction waits for what was sent and is in no batch yet, and no longer than it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog import AsyncProducer, DeliveryFailed, OutcomeUnknown, TransactionMisuse
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.transaction.command import Command, Kind
from oncelog.client.transaction.model import Phase
from oncelog.producer.async_transactions import AsyncTransactions


class Core:
    """Ends what it is asked to at once."""

    why_slow = "it is away"

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self.prepared = None
        self.asked: list[Kind] = []

    def ask_end(self, kind: Kind, on_end: Callable[[], None]) -> Command:
        self.asked.append(kind)
        self.phase = Phase.READY
        command = Command(kind, on_end)
        command.end()
        return command

    def heard(self, command: Command) -> None: ...
    def unheard(self, command: Command) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.core = Core()
        self.moves = asyncio.Event()
        self.given_up: list[Exception] = []
        unaccepted: Any = SimpleNamespace(count=3, all_accepted=self.moves.wait, give_up=self.given_up.append)
        core: Any = self.core
        self.transactions = AsyncTransactions(core, ProducerCounters(0), lambda: None, unaccepted, 600_000)


@pytest.mark.parametrize("how", ["commit", "commit without waiting", "prepare"])
def test_a_timeout_holds_for_what_is_in_no_batch_yet(how: str) -> None:
    async def body() -> None:
        scene = Scene()
        ends = {
            "commit": lambda timeout: scene.transactions.end(Kind.COMMIT, timeout),
            "commit without waiting": scene.transactions.commit_later,
            "prepare": scene.transactions.prepare,
        }
        with pytest.raises(OutcomeUnknown, match=r"3 records wait .* still open: call it again, or abort\(\)"):
            await ends[how](0.0)
        assert scene.core.asked == []
        scene.moves.set()
        await ends[how](60.0)
        assert scene.core.asked == [Kind.PREPARE if how == "prepare" else Kind.COMMIT]
        assert scene.given_up == []

    asyncio.run(body())


def test_an_abort_waits_for_nothing_and_gives_up_what_is_in_no_batch_yet() -> None:
    async def body() -> None:
        scene = Scene()
        await scene.transactions.end(Kind.ABORT, 60.0)
        assert scene.core.asked == [Kind.ABORT]
        assert [type(error) for error in scene.given_up] == [DeliveryFailed]

    asyncio.run(body())


def test_what_is_sent_between_transactions_does_not_wait_for_the_next() -> None:
    async def body() -> None:
        producer = AsyncProducer("127.0.0.1:1", transactional_id="t")
        with pytest.raises(TransactionMisuse, match="begin"):
            producer.send("unknown", b"")
        await producer.close(0)

    asyncio.run(body())
