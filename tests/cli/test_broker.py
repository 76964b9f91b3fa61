from __future__ import annotations

import argparse

from oncelog.cli.broker import add_parser, overrides


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["broker", *words])


def test_options_are_kafkas_keys() -> None:
    args = parse("--data", "/d", "--listen", "h:1", "--advertise", "a:2", "--node-id", "7", "-o", "num.partitions=3")
    assert overrides(args) == {
        "log.dirs": "/d",
        "listeners": "h:1",
        "advertised.listeners": "a:2",
        "node.id": "7",
        "num.partitions": "3",
    }


def test_an_option_wins_over_the_key_that_it_stands_for() -> None:
    assert overrides(parse("-o", "node.id=1", "--node-id", "2")) == {"node.id": "2"}


def test_nothing_said_is_nothing_overridden() -> None:
    assert overrides(parse()) == {}
