"""The shell that runs a core in a thread: sockets, the wait for them, and the clock.

    driver = SelectingDriver(core)
    threading.Thread(target=driver.run).start()       # until the core is finished
    driver.wake()                                     # from any thread: the core has something to do

While it sleeps, another thread may take the driver's turn (`turn`), and run the core in its place.

Decides nothing: what to connect to, what to send and when to give up comes from the core's network.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections import deque
from typing import NamedTuple

from oncelog.client.driven import Driven, advance, is_done, sleep_ms
from oncelog.client.network_events import Close, Connect, Effect, Event, Write
from oncelog.client.sockets import (
    ADDRESS_PATIENCE_MS,
    CAN_GATHER,
    CLOSED_BY_BROKER,
    MAX_GATHERED,
    SYSTEM_DEFAULTS,
    Address,
    SocketOptions,
    look_up,
    monotonic_ms,
    numeric,
    open_socket,
    reason_of,
    unsent,
)
from oncelog.client.turn import READABLE, WRITABLE, PipeBell, SocketBell, Turn, new_bell, new_watch
from oncelog.records.model import Buffer

_CONNECT_PENDING = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)


class Channel:
    """The socket of one link, and what it has not taken yet."""

    __slots__ = ("addresses", "backlog", "is_open", "link", "patience_ms", "reasons", "socket")

    def __init__(self, link: int) -> None:
        self.link = link
        self.addresses: deque[Address] = deque()  # not tried yet
        self.reasons: dict[str, None] = {}  # why those tried failed
        self.patience_ms: int | None = None  # when to try the next address
        self.socket: socket.socket | None = None
        self.is_open = False
        self.backlog: list[Buffer] = []


class Unread(NamedTuple):
    """Bytes that were received, and that nobody has looked at."""

    link: int
    size_bytes: int


class _Found(NamedTuple):
    host: str
    port: int
    addresses: list[Address]
    reason: str


class SelectingDriver:
    def __init__(self, core: Driven, options: SocketOptions = SYSTEM_DEFAULTS) -> None:
        self._core = core
        self._network = core.network
        self._options = options
        self.turn = Turn()
        self.watch = new_watch()
        self.channels_by_fd: dict[int, Channel] = {}
        self.left_over: list[Unread | Write] = []
        """What somebody who had the turn could not finish."""
        self.channels_by_link: dict[int, Channel] = {}
        self._dialing: set[Channel] = set()
        self._lookups: dict[tuple[str, int], int] = {}  # one thread each; the newest link that waits for it
        self._found: deque[_Found] = deque()
        self._is_closing = False
        self._is_running = False
        self._lock = threading.Lock()  # who ends the loop, and the bell
        self._bell: PipeBell | SocketBell | None = new_bell()
        self.watch.register(self._bell.reader, READABLE)

    # --- from any thread --------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """The core is polled soon. Costs a system call only if the driver sleeps.

        No call is lost: we say that we want it awake and then look whether it sleeps; it says that it sleeps and then
        looks whether it is wanted.
        """
        self.turn.is_wanted = True
        if self.turn.is_asleep:
            self.turn.is_asleep = False
            self._ring()

    def wake_by(self, moment_ms: int) -> None:
        """The core is polled by then. Costs nothing if the driver would look in time by itself: whatever was changed
        before it was seen asleep, it finds."""
        if not self.turn.is_asleep or self.turn.wakes_at_ms > moment_ms:
            self.wake()

    def close(self) -> None:
        """Ends `run` even if the core is not finished: its requests are lost. Frees everything."""
        with self._lock:
            self._is_closing = True
            is_running = self._is_running
        if is_running:
            self._ring()
        else:
            self._release()

    def _ring(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # one that is ringing wakes as well
            if self._bell is not None:
                self._bell.ring()

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the core is finished, or raises."""
        with self._lock:
            self._is_running = not self._is_closing
        with self.turn.lock:
            try:
                self._loop()
            except BaseException as error:
                self._core.failed(error)
                if not isinstance(error, Exception):
                    raise
            finally:
                self._release()
                self._is_running = False

    def _loop(self) -> None:
        core, network = self._core, self._network
        now_ms = monotonic_ms()
        while not self._is_closing:
            asked_ms = advance(core, now_ms)
            for effect in network.take_effects():
                self._perform(effect, now_ms)
            if is_done(core):
                return
            ready = self._wait(sleep_ms(network, asked_ms, now_ms), now_ms)
            now_ms = monotonic_ms()
            self._finish_left_over(now_ms)
            for fd, mask in ready:
                self._attend(fd, mask, now_ms)
            if self._dialing or self._found:
                self._dial_on(now_ms)
        if not core.is_finished:
            self._handle(network.close(), now_ms)

    def _wait(self, wait_ms: int, now_ms: int) -> list[tuple[int, int]]:
        """With the turn for whoever wants it, if there is nothing to do but to wait."""
        turn = self.turn
        for channel in self._dialing:
            if channel.patience_ms is not None:
                wait_ms = max(0, min(wait_ms, channel.patience_ms - now_ms))
        turn.wakes_at_ms = now_ms + wait_ms
        turn.can_be_lent = not self._dialing and not self._found and not self._is_closing
        turn.is_asleep = True
        is_wanted = turn.is_wanted
        turn.lock.release()
        try:
            self.watch.sleep(0 if is_wanted else wait_ms)
        finally:
            turn.lock.acquire()
            turn.can_be_lent = turn.is_asleep = turn.is_wanted = False
        return self.watch.ready()

    def _finish_left_over(self, now_ms: int) -> None:
        """Before anything else is read or written."""
        left_over, self.left_over = self.left_over, []
        for one in left_over:
            if isinstance(one, Unread):
                self._handle(self._network.received(one.link, one.size_bytes, now_ms), now_ms)
            else:
                self._perform(one, now_ms)

    def _perform(self, effect: Effect, now_ms: int) -> None:
        if type(effect) is Write:
            channel = self.channels_by_link.get(effect.link)
            if channel is not None:
                self._write(channel, effect.buffers, now_ms)
        elif type(effect) is Connect:
            self._connect(effect, now_ms)
        elif type(effect) is Close:
            channel = self.channels_by_link.pop(effect.link, None)
            if channel is not None:
                self._discard(channel)

    def _attend(self, fd: int, mask: int, now_ms: int) -> None:
        channel = self.channels_by_fd.get(fd)
        if channel is None:
            if self._bell is not None and fd == self._bell.reader:
                self._bell.hush()
        elif not channel.is_open:
            self._connected(channel, now_ms)
        else:
            if mask & WRITABLE:
                self._write(channel, [], now_ms)
            if mask & ~WRITABLE:
                self._read(channel, now_ms)

    def _handle(self, events: list[Event], now_ms: int) -> None:
        for event in events:
            self._core.handle(event, now_ms)

    # --- an open socket ---------------------------------------------------------------------------------------------

    def _read(self, channel: Channel, now_ms: int) -> None:
        if channel.socket is None:
            return
        try:
            count = channel.socket.recv_into(self._network.get_buffer(channel.link))
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(channel, reason_of(error), now_ms)
            return
        if count:
            self._handle(self._network.received(channel.link, count, now_ms), now_ms)
        else:
            self._lose(channel, CLOSED_BY_BROKER, now_ms)

    def _write(self, channel: Channel, buffers: list[Buffer], now_ms: int) -> None:
        """As much as the socket takes; the rest when it takes more."""
        assert channel.socket is not None
        was_behind = bool(channel.backlog)
        left = channel.backlog + buffers if was_behind else buffers
        try:
            while left:
                alone = len(left) == 1 or not CAN_GATHER
                sent = channel.socket.send(left[0]) if alone else channel.socket.sendmsg(left[:MAX_GATHERED])
                left = unsent(left, sent)
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(channel, reason_of(error), now_ms)
            return
        channel.backlog = left
        if bool(left) == was_behind:
            return
        if left:
            self._network.pause_writing(channel.link, now_ms)
        else:
            self._network.resume_writing(channel.link)
        self.watch.modify(channel.socket, READABLE | WRITABLE if left else READABLE)

    def _lose(self, channel: Channel, reason: str, now_ms: int) -> None:
        self.turn.is_wanted = True  # whatever the core had planned, it is to be asked again
        del self.channels_by_link[channel.link]
        self._discard(channel)
        self._handle(self._network.lost(channel.link, reason, now_ms), now_ms)

    def _discard(self, channel: Channel) -> None:
        self._dialing.discard(channel)
        if channel.socket is not None:
            self.watch.unregister(channel.socket)
            del self.channels_by_fd[channel.socket.fileno()]
            channel.socket.close()
            channel.socket = None

    # --- connecting -------------------------------------------------------------------------------------------------

    def _connect(self, effect: Connect, now_ms: int) -> None:
        link, host, port = effect
        channel = self.channels_by_link[link] = Channel(link)
        addresses = numeric(host, port)
        if addresses is not None:
            channel.addresses.extend(addresses)
            self._dial(channel, now_ms)
            return
        is_new = (host, port) not in self._lookups
        self._lookups[host, port] = link
        if is_new:  # in a thread: a slow name server must not hold up the other brokers
            threading.Thread(target=self._look_up, args=(host, port), name="oncelog-lookup", daemon=True).start()

    def _look_up(self, host: str, port: int) -> None:
        try:
            found = _Found(host, port, look_up(host, port), "the host has no address")
        except (OSError, ValueError) as error:
            found = _Found(host, port, [], reason_of(error))
        self._found.append(found)
        self.wake()

    def _dial_on(self, now_ms: int) -> None:
        """Names that were found, and addresses that have been silent for too long."""
        while self._found:
            host, port, addresses, reason = self._found.popleft()
            channel = self.channels_by_link.get(self._lookups.pop((host, port)))
            if channel is not None:
                channel.addresses.extend(addresses)
                if not addresses:
                    channel.reasons[reason] = None
                self._dial(channel, now_ms)
        for channel in list(self._dialing):
            if channel.patience_ms is not None and now_ms >= channel.patience_ms:
                self._dial(channel, now_ms)

    def _dial(self, channel: Channel, now_ms: int) -> None:
        """The next address of the host that can be tried at all."""
        self._discard(channel)
        while channel.addresses:
            address = channel.addresses.popleft()
            try:
                opened = open_socket(address, self._options)
            except OSError as error:
                channel.reasons[reason_of(error)] = None
                continue
            problem = opened.connect_ex(address.place)
            if problem in _CONNECT_PENDING:
                self._await_connection(channel, opened, now_ms)
                return
            channel.reasons[os.strerror(problem)] = None
            opened.close()
        self._lose(channel, "; ".join(channel.reasons), now_ms)

    def _await_connection(self, channel: Channel, opened: socket.socket, now_ms: int) -> None:
        channel.socket = opened
        channel.patience_ms = now_ms + ADDRESS_PATIENCE_MS if channel.addresses else None
        self.channels_by_fd[opened.fileno()] = channel
        self.watch.register(opened, WRITABLE)
        self._dialing.add(channel)

    def _connected(self, channel: Channel, now_ms: int) -> None:
        """An attempt to connect has ended, well or badly."""
        assert channel.socket is not None
        problem = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            channel.reasons[os.strerror(problem)] = None
            self._dial(channel, now_ms)
            return
        channel.is_open = True
        self._dialing.discard(channel)
        self.watch.modify(channel.socket, READABLE)
        self._network.opened(channel.link, now_ms)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        self._network.close()
        for channel in self.channels_by_link.values():
            self._discard(channel)
        self.channels_by_link.clear()
        with self._lock:
            if self._bell is not None:
                self.watch.close()
                self._bell.close()
                self._bell = None
