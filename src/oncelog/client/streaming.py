"""The shell that runs a core in an asyncio loop (or uvloop): transports instead of sockets, no thread.

    driver = StreamingDriver(core, asyncio.get_running_loop())
    driver.start()
    driver.wake()              # the core has something to do
    await driver.join()        # until the core is finished
    await driver.close()

Decides nothing: what to connect to, what to send and when to give up comes from the core's network. Everything runs
in callbacks of the loop; only `wake` may be called from elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import cast

from oncelog.client.driven import Driven, advance, is_done, sleep_ms
from oncelog.client.network_events import Connect, Effect, Event, Write
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
from oncelog.records.model import Buffer


class _Channel(asyncio.BufferedProtocol):
    """The transport of one link. Tells the driver, by the link's number, what happens to it."""

    def __init__(self, driver: StreamingDriver, link: int) -> None:
        self._driver = driver
        self._link = link
        self._network = driver.network
        self._transport: asyncio.Transport | None = None
        self.socket: socket.socket | None = None
        self._is_unwanted = False
        self.dialing: asyncio.Task[None] | None = None

    def write(self, buffers: list[Buffer]) -> None:
        assert self._transport is not None, "written to before it was opened"
        if CAN_GATHER and not self._transport.get_write_buffer_size():
            buffers = self._write_now(buffers)
        if buffers:
            self._transport.writelines(buffers)
            self._heed_every_byte()  # Python 3.12 and 3.13.0 forget to, and would never say that bytes wait

    def _write_now(self, buffers: list[Buffer]) -> list[Buffer]:
        """What the socket takes at once; the transport would first copy it all into one piece. Returns the rest."""
        assert self.socket is not None
        try:
            return unsent(buffers, self.socket.sendmsg(buffers[:MAX_GATHERED]))
        except OSError:  # the transport meets it again, and tells
            return buffers

    def _heed_every_byte(self) -> None:
        """The transport compares what waits with its limit at once, and whenever it thinks of it."""
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=0)

    def hang_up(self) -> None:
        self._is_unwanted = True
        if self._transport is not None:
            self._transport.abort()
        elif self.dialing is not None:
            self.dialing.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not asyncio's in name
        if self._is_unwanted:
            self._transport.abort()
            return
        self._heed_every_byte()
        self._network.opened(self._link, monotonic_ms())
        self._driver.wake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._network.get_buffer(self._link)

    def buffer_updated(self, count: int) -> None:
        self._driver.received(self._link, count)

    def pause_writing(self) -> None:
        self._network.pause_writing(self._link, monotonic_ms())

    def resume_writing(self) -> None:
        self._network.resume_writing(self._link)
        self._driver.wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._driver.lost(self._link, CLOSED_BY_BROKER if error is None else reason_of(error))


class StreamingDriver:
    def __init__(self, core: Driven, loop: asyncio.AbstractEventLoop, options: SocketOptions = SYSTEM_DEFAULTS) -> None:
        self._core = core
        self._loop = loop
        self._options = options
        self._channels: dict[int, _Channel] = {}
        self._thread: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False  # a pass is scheduled and has not begun
        self._is_in_pass = False
        self._has_ended = False
        self._ended = loop.create_future()
        self._all_gone = loop.create_future()
        self.network = core.network

    # --- for the owner ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """From the loop's own thread."""
        self._thread = threading.get_ident()
        self.wake()

    def wake(self) -> None:
        """The core is polled soon. Many calls before that are one. May come from any thread once started."""
        if self._is_due:
            return
        self._is_due = True
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._on_wake)
        else:
            self._loop.call_soon_threadsafe(self._on_wake)

    def hurry(self) -> None:
        """From the loop's own thread: the core is polled at once, unless that is what goes on."""
        if not self._is_in_pass and not self._has_ended:
            self._is_due = False
            self._run_pass([], monotonic_ms())

    async def join(self) -> None:
        """Until the core is finished, or has failed."""
        await asyncio.shield(self._ended)

    async def close(self) -> None:
        """Ends the driver even if the core is not finished: its requests are lost. Returns when all sockets are
        closed."""
        self.abandon()
        await asyncio.shield(self._all_gone)

    def abandon(self) -> None:
        """As `close`, where nobody can wait for the sockets."""
        if not self._has_ended:
            self._end()

    # --- what the channels tell -------------------------------------------------------------------------------------

    def received(self, link: int, count: int) -> None:
        if not self._has_ended:
            now_ms = monotonic_ms()
            self._run_pass(self.network.received(link, count, now_ms), now_ms)

    def lost(self, link: int, reason: str) -> None:
        self._channels.pop(link, None)
        if self._has_ended and not self._channels:
            self._all_gone.set_result(None)
        if not self._has_ended:
            now_ms = monotonic_ms()
            self._run_pass(self.network.lost(link, reason, now_ms), now_ms)

    # --- a pass -----------------------------------------------------------------------------------------------------

    def _on_wake(self) -> None:
        if self._is_due:  # nobody was in a hurry meanwhile
            self._is_due = False
            if not self._has_ended:
                self._run_pass([], monotonic_ms())

    def _run_pass(self, events: list[Event], now_ms: int) -> None:
        """What happened, then what is due, then its effects."""
        self._is_in_pass = True
        try:
            for event in events:
                self._core.handle(event, now_ms)
            asked_ms = advance(self._core, now_ms)
            for effect in self.network.take_effects():
                self._perform(effect)
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_in_pass = False
        if is_done(self._core):
            self._end()
        else:
            self._set_timer(sleep_ms(self.network, asked_ms, now_ms))

    def _set_timer(self, wait_ms: int) -> None:
        """A timer that fires too early is left alone: it costs one pass, and a new one would cost as much each time."""
        moment = self._loop.time() + wait_ms / 1000
        if self._timer is not None:
            if self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._has_ended:
            self._run_pass([], monotonic_ms())

    def _perform(self, effect: Effect) -> None:
        if type(effect) is Connect:
            channel = self._channels[effect.link] = _Channel(self, effect.link)
            channel.dialing = self._loop.create_task(self._dial(channel, effect.host, effect.port))
            channel.dialing.add_done_callback(partial(self._dialed, effect.link))
        elif effect.link in self._channels:
            channel = self._channels[effect.link]
            if type(effect) is Write:
                channel.write(effect.buffers)
            else:
                channel.hang_up()

    # --- connecting -------------------------------------------------------------------------------------------------

    async def _dial(self, channel: _Channel, host: str, port: int) -> None:
        opened = await self._first_that_connects(host, port)
        channel.dialing = None  # from here on the transport tells how it ends
        channel.socket = opened
        await self._loop.create_connection(lambda: channel, sock=opened)

    def _dialed(self, link: int, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.lost(link, "not wanted any more")
        elif (error := task.exception()) is not None:
            self.lost(link, reason_of(error))

    async def _first_that_connects(self, host: str, port: int) -> socket.socket:
        """A socket to the first address of the host that accepts. Raises OSError with the reasons of all."""
        addresses = numeric(host, port)
        if addresses is None:
            addresses = await self._loop.run_in_executor(None, look_up, host, port)
        reasons: dict[str, None] = {}
        for number, address in enumerate(addresses, start=1):
            patience_s = None if number == len(addresses) else ADDRESS_PATIENCE_MS / 1000
            try:
                return await self._connected(address, patience_s)
            except OSError as error:
                reasons[reason_of(error)] = None
        raise OSError("; ".join(reasons))

    async def _connected(self, address: Address, patience_s: float | None) -> socket.socket:
        opened = open_socket(address, self._options)
        try:
            async with asyncio.timeout(patience_s):
                await self._loop.sock_connect(opened, address.place)
        except BaseException:
            opened.close()
            raise
        return opened

    # --- the end ----------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self._stop()
        self._core.failed(error)

    def _end(self) -> None:
        events = self.network.close()
        self._stop()
        if self._core.is_finished:
            return
        now_ms = monotonic_ms()
        try:
            for event in events:
                self._core.handle(event, now_ms)
        except Exception as error:
            self._core.failed(error)

    def _stop(self) -> None:
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        self.network.close()
        for channel in list(self._channels.values()):
            channel.hang_up()
        self._ended.set_result(None)
        if not self._channels:
            self._all_gone.set_result(None)
