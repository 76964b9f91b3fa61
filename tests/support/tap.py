"""A TCP tap: passes bytes between clients and a broker unchanged, and keeps a copy of every request frame."""

from __future__ import annotations

import asyncio
import threading

SIZE_BYTES = 4


class Tap:
    """Listens on a port of its own in a thread of its own; `frames` grows as clients speak."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.port = 0
        self._upstream = ("127.0.0.1", 0)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> int:
        self._thread.start()
        self._ready.wait()
        return self.port

    def connect(self, address: tuple[str, int]) -> None:
        """Where to pass the bytes on to; known only after the broker was told the tap's port."""
        self._upstream = address

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(*self._upstream)
        await asyncio.gather(
            self._pass_requests(reader, broker_writer),
            self._pass_answers(broker_reader, writer),
            return_exceptions=True,
        )

    async def _pass_requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await source.readexactly(SIZE_BYTES)
                payload = await source.readexactly(int.from_bytes(size, "big"))
                self.frames.append(payload)
                sink.write(size + payload)
                await sink.drain()
        finally:
            sink.close()

    async def _pass_answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(1 << 16):
                sink.write(chunk)
                await sink.drain()
        finally:
            sink.close()
