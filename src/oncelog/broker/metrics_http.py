"""As much of HTTP as a scraper of metrics speaks: bytes in, the answer's head out.

Owns which requests are whole, which are refused and why, and the bound on their size. Knows no socket and no metric.
One request per connection: an answer says `Connection: close`.
"""

from __future__ import annotations

from typing import Final

from oncelog.named_tuple import NamedTuple

METRICS_PATH: Final = "/metrics"
TEXT: Final = "text/plain; charset=utf-8"
MAX_REQUEST_BYTES: Final = 16 * 1024
"""Prometheus sends some 300 bytes; whoever sends so many headers wants something else."""
METHODS: Final = ("GET", "HEAD")
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}


class Scrape(NamedTuple):
    """A request for the metrics; without a body they are only announced."""

    has_body: bool


class Refusal(NamedTuple):
    status: int
    text: str
    has_body: bool = True


def read_request(received: bytes | bytearray) -> Scrape | Refusal | None:
    """What the bytes so far ask for; None while more must come."""
    head, end, _ = bytes(received).partition(b"\r\n\r\n")
    if not end:
        head, end, _ = bytes(received).partition(b"\n\n")
    if len(head) > MAX_REQUEST_BYTES:
        return Refusal(431, f"a request may have {MAX_REQUEST_BYTES} bytes")
    if not end:
        return None
    words = head.splitlines()[0].decode("latin-1").split(" ") if head else []
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Refusal(400, f"this is not HTTP/1.1; ask for GET {METRICS_PATH}")
    method, target, _ = words
    if method not in METHODS:
        return Refusal(405, f"{METRICS_PATH} can only be read")
    if target.partition("?")[0] != METRICS_PATH:
        return Refusal(404, f"there is only {METRICS_PATH}", has_body=method != "HEAD")
    return Scrape(has_body=method != "HEAD")


def answer_head(status: int, content_type: str, size_bytes: int) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {content_type}",
        f"Content-Length: {size_bytes}",
        "Connection: close",
    ]
    if status == 405:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode()


def refuse(refusal: Refusal) -> bytes:
    body = refusal.text.encode() + b"\n"
    head = answer_head(refusal.status, TEXT, len(body))
    return head + body if refusal.has_body else head
