"""A part of the descriptors is the broker's own."""

from __future__ import annotations

import os
import resource

import pytest

from oncelog.broker.descriptors import RESERVED_DESCRIPTORS, duplicate_for_client, is_for_clients, reserve_of


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As the system would tell it; a list of one, which a test may change."""
    current = [1024]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (current[0], current[0]))
    return current


def test_the_last_descriptors_are_not_for_clients(limit: list[int]) -> None:
    assert is_for_clients(1024 - RESERVED_DESCRIPTORS - 1)
    assert not is_for_clients(1024 - RESERVED_DESCRIPTORS)
    limit[0] = 600
    assert (reserve_of(600), is_for_clients(524), is_for_clients(525)) == (75, True, False)
    limit[0] = resource.RLIM_INFINITY
    assert is_for_clients(2**31)


def test_a_second_descriptor_of_a_socket_is_given_back_if_clients_may_not_have_it(limit: list[int]) -> None:
    own = os.open("/", os.O_RDONLY)
    try:
        second = duplicate_for_client(own)
        os.close(second)
        limit[0] = second
        with pytest.raises(OSError, match="reserved for the broker"):
            duplicate_for_client(own)
        limit[0] = 1024
        again = duplicate_for_client(own)
        os.close(again)
        assert again == second, "nothing was left open"
    finally:
        os.close(own)
