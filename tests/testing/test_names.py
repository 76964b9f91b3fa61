from __future__ import annotations

import re

import pytest

from oncelog.testing.names import fresh_name, seed_of


@pytest.mark.parametrize(
    ("parts", "readable"),
    [
        (("test_orders",), "orders"),
        (("test_orders[gzip-1]", "input"), "orders-gzip-1-input"),
        (("test_größe[/ \x1b]", ""), "gr-e"),
        (("",), "test"),
        (("x" * 500,), "x" * 80),
    ],
)
def test_a_name_tells_its_test_and_is_valid_as_a_topic(parts: tuple[str, ...], readable: str) -> None:
    name = fresh_name(*parts)
    assert name.rpartition("-")[0] == readable
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)


def test_no_name_comes_twice() -> None:
    assert len({fresh_name("test_orders") for _ in range(1000)}) == 1000


def test_a_seed_is_the_test_and_nothing_else() -> None:
    assert seed_of("test_orders.py::test_orders") == 1426840763
    assert seed_of("test_orders.py::test_orders") != seed_of("test_orders.py::test_payments")
