"""What a scraper may ask for, what others are told, and how the answer's head looks."""

from __future__ import annotations

import http.client
import io

import pytest

from oncelog.broker.metrics_http import MAX_REQUEST_BYTES, Refusal, Scrape, answer_head, read_request, refuse

ASKED = {
    "as Prometheus": (b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n", Scrape(True)),
    "by hand": (b"GET /metrics HTTP/1.0\n\n", Scrape(True)),
    "with a query": (b"GET /metrics?name[]=x HTTP/1.1\r\n\r\n", Scrape(True)),
    "only the head": (b"HEAD /metrics HTTP/1.1\r\n\r\n", Scrape(False)),
    "something else": (b"GET / HTTP/1.1\r\n\r\n", 404),
    "a neighbour": (b"GET /metricsx HTTP/1.1\r\n\r\n", 404),
    "to write": (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
    "no HTTP": (b"hello\r\n\r\n", 400),
    "nothing": (b"\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "bytes": (bytes(range(256)) + b"\r\n\r\n", 400),
    "too much": (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES, 431),
    "too much, and whole": (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES + b"\r\n\r\n", 431),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_for(name: str) -> None:
    received, expected = ASKED[name]
    found = read_request(received)
    assert (found.status if isinstance(found, Refusal) else found) == expected


def test_a_part_of_a_request_is_waited_for() -> None:
    whole = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
    assert [read_request(whole[:size]) for size in range(len(whole))] == [None] * len(whole)


class _Received:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._answer)


def parsed(answer: bytes, method: str = "GET") -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(_Received(answer), method=method)  # type: ignore[arg-type]
    response.begin()
    return response


def test_answers_as_another_implementation_reads_them() -> None:
    good = parsed(answer_head(200, "text/plain", 4) + b"body")
    assert (good.status, good.getheader("Connection"), good.read()) == (200, "close", b"body")
    refused = parsed(refuse(Refusal(405, "no")))
    assert (refused.status, refused.getheader("Allow"), refused.read()) == (405, "GET, HEAD", b"no\n")
    silent = parsed(refuse(Refusal(404, "no", has_body=False)), method="HEAD")
    assert (silent.status, silent.getheader("Content-Length"), silent.read()) == (404, "3", b"")
