"""The page for Prometheus, over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from oncelog.spark.watch import endpoint
from oncelog.spark.watch.endpoint import BadAddress, MetricsServer
from oncelog.spark.watch.listener import QUERIES

pytestmark = pytest.mark.real
TIMEOUT_S = 60


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    serving = MetricsServer("127.0.0.1:0")
    yield serving
    serving.close()


def test_the_page(server: MetricsServer) -> None:
    QUERIES.started("run-of-the-page", "id-of-the-page", "page", 1.0)
    with urlopen(f"http://{server.address}/metrics", timeout=TIMEOUT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'oncelog_spark_query_active{query="page",id="id-of-the-page"} 1' in answer.read().decode()
    with pytest.raises(HTTPError, match="the page is /metrics"):
        urlopen(f"http://{server.address}/other", timeout=TIMEOUT_S)


def test_a_scraper_that_sends_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch, server: MetricsServer) -> None:
    monkeypatch.setattr(endpoint._Page, "timeout", 0.1)
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as silent:
        assert silent.recv(100) == b""
    with urlopen(f"http://{server.address}/metrics", timeout=TIMEOUT_S) as answer:
        assert answer.status == 200


def test_an_address_that_cannot_be(server: MetricsServer) -> None:
    for wrong in ("9464", "127.0.0.1:", "127.0.0.1:many", "127.0.0.1:70000"):
        with pytest.raises(BadAddress, match="HOST:PORT"):
            MetricsServer(wrong)
    with pytest.raises(BadAddress, match=f"cannot be served at {server.address}: Address already in use"):
        MetricsServer(server.address)
