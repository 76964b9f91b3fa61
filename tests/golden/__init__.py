"""Segments that Apache Kafka wrote, and how tests get at them. `capture` made them."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@cache
def manifest() -> dict[str, dict[str, list[dict[str, Any]]]]:
    loaded: dict[str, dict[str, list[dict[str, Any]]]] = json.loads((HERE / "manifest.json").read_text())
    return loaded


def topics() -> list[str]:
    return sorted(manifest())


def segment(topic: str) -> bytes:
    return (HERE / "segments" / f"{topic}.log").read_bytes()


def expected_batches(topic: str) -> list[dict[str, str]]:
    """What Kafka's DumpLogSegments said of each batch."""
    return manifest()[topic]["batches"]


def expected_records(topic: str) -> list[dict[str, Any]]:
    """What librdkafka's consumer returned; keys and values as `same_bytes` compares them."""
    return manifest()[topic]["records"]


def same_bytes(data: bytes | None, expected: str | list[Any] | None) -> bool:
    if data is None or expected is None:
        return data is None and expected is None
    if isinstance(expected, str):
        return data == base64.b64decode(expected)
    return [len(data), hashlib.sha256(data).hexdigest()] == expected
