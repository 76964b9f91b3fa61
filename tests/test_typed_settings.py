"""Settings are known to type checkers and editors: by name, by type, with what they mean."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from oncelog.client import typed_settings
from oncelog.client.settings import BOOTSTRAP_SERVERS
from tools.type_settings import CLASSES, PATH, module

ROOT = Path(__file__).parent.parent
MYPY_TIMEOUT_S = 300

PROGRAM = """\
import oncelog

oncelog.Producer("127.0.0.1:9092", linger_ms=5, compression_type="zstd", partitioner="consistent_random", acks="all")
oncelog.Producer("127.0.0.1:9092", lingr_ms=5)
oncelog.AsyncProducer("127.0.0.1:9092", lingr_ms=5)
oncelog.Consumer("127.0.0.1:9092", group_id="billing", isolation_level="read_committed", max_poll_records=10)
oncelog.Consumer("127.0.0.1:9092", groupid="billing")
oncelog.AsyncConsumer("127.0.0.1:9092", max_poll_records=None)
oncelog.Admin("127.0.0.1:9092", request_timeout_ms=5_000)
oncelog.Admin("127.0.0.1:9092", linger_ms=5)
oncelog.Producer({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 5})
settings: oncelog.ProducerSettings = {"linger_ms": 5}
oncelog.Producer("127.0.0.1:9092", **settings)
"""
WRONG_LINES = {
    4: 'Unexpected keyword argument "lingr_ms" for "Producer"; did you mean "linger_ms"?',
    5: 'Unexpected keyword argument "lingr_ms" for "AsyncProducer"; did you mean "linger_ms"?',
    7: 'Unexpected keyword argument "groupid" for "Consumer"; did you mean "group_id"?',
    8: 'Argument "max_poll_records" to "AsyncConsumer" has incompatible type "None"; expected "int"',
    10: 'Unexpected keyword argument "linger_ms" for "Admin"',
}


def test_the_module_is_what_the_config_classes_say() -> None:
    assert PATH.read_text() == module(), "run `python -m tools.type_settings`"


@pytest.mark.parametrize(("name", "config", "also"), [each[:3] for each in CLASSES], ids=lambda value: str(value)[:20])
def test_every_setting_and_no_other_is_typed(name: str, config: type[Any], also: dict[str, str]) -> None:
    typed = get_type_hints(getattr(typed_settings, name))
    assert [*typed] == [each.name for each in fields(config) if each.name != BOOTSTRAP_SERVERS] + [*also]


@pytest.mark.real
def test_a_misspelt_setting_is_an_error_before_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    # In the repository, so that what `make lint` has learned need not be learned again.
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-codes", str(program)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        timeout=MYPY_TIMEOUT_S,
        check=False,
    )
    said = [line.partition("shop.py:")[2] for line in found.stdout.splitlines() if "shop.py:" in line]
    errors = {line: text for line, _, text in (one.partition(": error: ") for one in said) if text}
    assert errors == {str(line): text for line, text in WRONG_LINES.items()}, found.stdout + found.stderr
