"""A page for Prometheus about the streaming queries of this process. A shell: one thread, one scraper at a time.

A scraper that sends nothing, or does not read, is cut off after `SCRAPE_TIMEOUT_S`; the others wait so long at most.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

from oncelog.errors import OncelogError
from oncelog.spark.watch.listener import QUERIES
from oncelog.spark.watch.queries import prometheus_text

SCRAPE_TIMEOUT_S: Final = 5.0
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PATHS: Final = ("/metrics", "/")


class BadAddress(OncelogError):
    """Metrics cannot be served there."""


class _Page(BaseHTTPRequestHandler):
    timeout = SCRAPE_TIMEOUT_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in PATHS:
            self.send_error(404, "the page is /metrics")
            return
        page = prometheus_text(QUERIES.states()).encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is nothing to tell."""


_served: dict[str, MetricsServer] = {}


def serve(address: str) -> MetricsServer:
    """From now on; whoever asks for the same address again gets the same server."""
    if address not in _served:
        _served[address] = MetricsServer(address)
    return _served[address]


class MetricsServer:
    """Serves until it is closed, or the process ends."""

    def __init__(self, address: str) -> None:
        """`HOST:PORT`; port 0 picks a free one. Raises BadAddress."""
        host, colon, port = address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise BadAddress(f"metrics are served at HOST:PORT, such as 127.0.0.1:9464, not at {address!r}")
        try:
            self._server = HTTPServer((host.strip("[]"), int(port)), _Page)
        except OSError as error:
            raise BadAddress(f"metrics cannot be served at {address}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="oncelog-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
