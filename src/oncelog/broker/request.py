"""What a handler is given, and the shapes that its answer may take.

A handler returns one of
- a `Message` (cold APIs): dispatch encodes it by the API's schema;
- `Chunks` (hot APIs): the encoded body, in pieces, some of which may still lie in a segment file;
- `Piecewise`: a `Message` one array of which is made element by element, while others are served;
- `Stepwise`: any of these, which takes many steps to come to, while others are served;
- a `Pending`: the answer comes later, when data arrives, a flush ends or a deadline passes;
- `NO_REPLY`: the protocol wants no answer (`acks=0`);
- `CLOSE`: it wants none and has no other way to say that something went wrong: the connection ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from oncelog.named_tuple import NamedTuple
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.fetch_pace import FetchPace
    from oncelog.broker.fetch_view import FetchView
    from oncelog.broker.quota.meter import Meter

logger = logging.getLogger(__name__)


class RecordsOnDisk(Protocol):
    """Records of a response that are read from their files only while they are being sent."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def descriptor(self) -> int | None:
        """Of the open file, if there is one that the operating system can send from."""

    @property
    def position(self) -> int: ...

    def read_all(self) -> bytes: ...


Chunk = bytes | RecordsOnDisk
Chunks = list[Chunk]


class Peer:
    """Who is at the other end of a connection."""

    __slots__ = ("host", "pace", "view")

    def __init__(self, host: str = "") -> None:
        self.host = host
        """As Kafka shows it: `/127.0.0.1`."""
        self.pace: FetchPace | None = None
        """For clients that are served better when they are not answered as fast as possible."""
        self.view: FetchView | None = None
        """What it fetches without a session; kept by `SessionlessViews`."""


class Request(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    now_ms: int
    """By a clock that nobody turns: for deadlines, and for what goes after a while."""
    wall_ms: int
    """The time of day: for what is stamped with it, or judged by such a stamp."""
    meter: Meter | None
    """Counts what the request costs its client, while quotas are set."""
    peer: Peer


class NoReply(Enum):
    NO_REPLY = 0


class CloseConnection(Enum):
    """What Kafka does where the protocol has no way to say what went wrong: hang up. The value tells the log why."""

    CLOSE = "a request with acks=0 failed"
    FAILED = "the broker failed; its log says why"


NO_REPLY: Final = NoReply.NO_REPLY
CLOSE: Final = CloseConnection.CLOSE
FAILED: Final = CloseConnection.FAILED


@dataclass(slots=True, eq=False)
class Pending:
    """An answer that is still to come. The shell sets `on_complete` and, for a deadline, a timer for `expire`."""

    deadline_ms: int | None = None
    expire: Callable[[], None] | None = None
    abandon: Callable[[], None] | None = None
    on_complete: Callable[[Late], None] | None = None
    amend: Callable[[Message], None] | None = None
    """What the handler adds to an answer that somebody else completes."""
    holds_connection: bool = False
    """What the client has sent after this request is not looked at before it is done."""
    has_failed: bool = False

    def attempt(self, step: Callable[[], None]) -> None:
        """Do something that this answer waits for. Whoever calls back, a thread's end or a timer, could not answer the
        client if it fails, which would wait for ever: so the connection ends, as after any other bug. The client asks
        again, and what was appended is recognised. Before the connection has taken it over, the dispatcher answers."""
        try:
            step()
        except Exception:
            if self.on_complete is None:
                raise
            logger.exception("bug: a request could not be finished")
            self.complete(FAILED)
            self.has_failed = True

    def follow(self, answer: Answer) -> None:
        """Complete with an answer, or when that completes; a client that goes meanwhile is told to that one."""
        if not isinstance(answer, Pending):
            self.complete(answer)
            return

        def completed(of_other: Late) -> None:
            self.abandon = None
            self.complete(of_other)

        answer.on_complete = completed
        self.abandon = answer.abandon

    def complete(self, answer: Late) -> None:
        assert self.on_complete is not None, "completed before the connection took it over"
        if self.has_failed:
            return
        if self.amend is not None and isinstance(answer, dict):
            self.amend(answer)
        self.on_complete(answer)


@dataclass(slots=True, eq=False)
class Piecewise:
    """An answer that may be long to make. Whoever sends it makes one element after the other, and serves others in
    between: what an element tells is what is true when it is made."""

    rest: Message
    """The fields besides the array."""
    array: str
    elements: Iterator[Message | None]
    """None between two of them: an element that takes long is not ready yet."""


class Wait:
    """What steps cannot go on without: a flush, or the answer of somebody else."""

    __slots__ = ("_go_on", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._go_on: Callable[[], None] | None = None

    def end(self) -> None:
        self.is_over = True
        if self._go_on is not None:
            self._go_on()

    def when_over(self, go_on: Callable[[], None]) -> None:
        if self.is_over:
            go_on()
        else:
            self._go_on = go_on


AnswerSteps = Generator[Wait | None, None, "Answer"]
"""Work of which every step is short; what it returns is the answer. It raises nothing but bugs."""


class Stepwise:
    """An answer that takes long to come to: whoever sends it takes one step after the other, a few milliseconds of them
    in each round of the loop, and serves others in between. Until then nothing else of its client is looked at."""

    __slots__ = ("_abandoned", "_steps", "amend")

    def __init__(self, steps: AnswerSteps, abandoned: Callable[[], None] | None = None) -> None:
        """`abandoned` is told if the client goes before the end; the steps may not even have begun by then."""
        self._steps = steps
        self._abandoned = abandoned
        self.amend: Callable[[Message], None] | None = None
        """What is added to an answer that is a message."""

    def step(self) -> Answer | Wait | None:
        """The answer after the last step; what to wait for before the next one, if there is something."""
        try:
            return next(self._steps)
        except StopIteration as end:
            answer: Answer = end.value
        if self.amend is not None:
            if isinstance(answer, Stepwise | Pending):
                answer.amend = self.amend
            elif isinstance(answer, dict):
                self.amend(answer)
        return answer

    def abandon(self) -> None:
        self._steps.close()
        if self._abandoned is not None:
            self._abandoned()


def awaited(pending: Pending) -> tuple[Wait, list[Late]]:
    """For steps that need somebody's answer: what to wait for, and where the answer is then."""
    wait, came = Wait(), list[Late]()

    def completed(answer: Late) -> None:
        came.append(answer)
        wait.end()

    pending.on_complete = completed
    return wait, came


Silent = Literal[NoReply.NO_REPLY] | CloseConnection
"""How a request with `acks=0` ends, or one that the broker has failed at."""

Late = Message | Chunks | Piecewise | Stepwise | Silent
"""What comes of a `Pending`."""

Answer = Late | Pending


def promised(request: Request, begin: Callable[[Callable[[Callable[[], Answer]], None]], None]) -> Answer:
    """The answer, once `begin` has told the function that it is given how it is made: now, or later. If that fails the
    client hears, and nobody else does. What the client sends meanwhile is not looked at before, so it sees what this
    request has changed."""
    ready: list[Answer] = []
    failed: list[Exception] = []
    pending = Pending(holds_connection=True)
    is_late = False

    def deliver(make: Callable[[], Answer]) -> None:
        if is_late:
            pending.attempt(lambda: pending.follow(_metered(request, make())))
            return
        try:
            ready.append(make())
        except Exception as error:  # the dispatcher's to answer, and not the business of whoever calls back
            failed.append(error)

    begin(deliver)
    is_late = True
    if failed:
        raise failed[0]
    return ready[0] if ready else pending


def _metered(request: Request, answer: Answer) -> Answer:
    """What an answer that comes later tells of quotas; for one that comes at once the dispatcher does it."""
    message = answer.rest if isinstance(answer, Piecewise) else answer
    if request.meter is not None and isinstance(message, dict):
        message["throttle_time_ms"] = request.meter.served()
    return answer
