"""A TCP proxy that stands between clients and a broker and breaks their connections on demand.

It forwards bytes and knows nothing of Kafka's protocol. The cruellest fault is `swallow_answers` followed by `cut`:
the broker has written the records, the client will never hear of it, and must send them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

CHUNK_BYTES = 64 * 1024
START_TIMEOUT_S = 10.0


class _Link:
    """One client's connection and its continuation to the broker."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._writers = (client, broker)
        self.swallows_answers = False

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


class CuttingProxy:
    """Listens on `address` and forwards to `upstream`, from a thread of its own.

    `upstream` may be set later and changed at any time; while nothing listens there, clients are turned away.
    """

    def __init__(self, upstream: tuple[str, int] | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.upstream = upstream
        self.address = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="oncelog-fault-proxy", daemon=True)
        self._listening = threading.Event()
        self._failure: OSError | None = None
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def start(self) -> None:
        """Listen; returns once clients can connect."""
        self._thread.start()
        self._listening.wait(START_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def cut(self) -> int:
        """Break every open connection at once; returns how many there were."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    def swallow_answers(self) -> None:
        """From now on, let requests of the open connections through but none of their answers."""
        self._loop.call_soon_threadsafe(self._swallow)

    def __enter__(self) -> CuttingProxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        except OSError as failure:
            self._failure = failure
            self._loop.close()
            return
        finally:
            self._listening.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._shut())
            self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, *self.address, limit=CHUNK_BYTES)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = (host, port)

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _cut(self) -> int:
        links, self._links = self._links, set()
        for link in links:
            link.abort()
        return len(links)

    def _swallow(self) -> None:
        for link in self._links:
            link.swallows_answers = True

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        # asyncio would report a cancelled handler as an error; here it only means that the proxy closes.
        with contextlib.suppress(asyncio.CancelledError):
            await self._forward(from_client, to_client)

    async def _forward(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            if self.upstream is None:
                raise ConnectionRefusedError
            from_broker, to_broker = await asyncio.open_connection(*self.upstream, limit=CHUNK_BYTES)
        except OSError:
            to_client.transport.abort()
            return
        link = _Link(to_client, to_broker)
        self._links.add(link)
        pumps = [
            asyncio.create_task(_pump(from_client, to_broker)),
            asyncio.create_task(_pump(from_broker, to_client, link)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.abort()
            for pump in pumps:
                pump.cancel()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, link: _Link | None = None) -> None:
    """Copy until either side ends. Answers are dropped once their link swallows them."""
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK_BYTES):
            if link is not None and link.swallows_answers:
                continue
            target.write(chunk)
            await target.drain()
