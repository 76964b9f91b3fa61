"""Captures what Apache Kafka's own assignors make of groups, and the bytes that members of a classic group write.

    python -m tests.golden.capture_assignments

asks `RangeAssignor`, `RoundRobinAssignor`, `ConsumerProtocol` and the sticky assignors' user data about every group of
`groups()` and keeps the answers in `assignments.jsonl`. It needs a JDK, for `java` compiles the small source in
`java/`; the tests do not.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from tests.support.kafka import java_command

HERE = Path(__file__).parent
ASSIGNMENTS = HERE / "assignments.jsonl"
TIMEOUT_S = 120
COUNT = 150
WITH_BYTES = 25
"""So many groups are kept with what their members write."""
RACKS = ("a", "b", "c")


def groups() -> list[dict[str, Any]]:
    """Groups of all shapes: with and without racks, static members, subscriptions that differ, missing topics."""
    chance = random.Random(5)
    return [_group(chance) for _ in range(COUNT)]


def _group(chance: random.Random) -> dict[str, Any]:
    has_racks = chance.random() < 0.6
    names = [f"t{number}" for number in range(chance.randint(1, 4))]
    size = chance.randint(1, 9)
    topics = {
        name: [_racks(chance, has_racks) for _ in range(size if chance.random() < 0.5 else chance.randint(1, 9))]
        for name in names
    }
    members = {}
    is_uniform = chance.random() < 0.5
    for number in range(chance.randint(1, 6)):
        wanted = names if is_uniform else chance.sample(names, chance.randint(1, len(names)))
        owned = [[name, index] for name in wanted for index in range(len(topics[name])) if chance.random() < 0.2]
        members[f"m{chance.randint(0, 99)}-{number}"] = {
            "topics": [*wanted, "missing"] if chance.random() < 0.1 else wanted,
            "rack": chance.choice(RACKS) if has_racks and chance.random() < 0.9 else None,
            "instance": f"i{chance.randint(0, 9)}{number}" if chance.random() < 0.2 else None,
            "owned": owned,
            "generation": chance.choice((-1, 0, 7)),
        }
    return {"topics": topics, "members": members}


def _racks(chance: random.Random, has_racks: bool) -> list[str]:
    return sorted(chance.sample(RACKS, chance.randint(1, 3))) if has_racks else []


def capture() -> None:
    asked = "".join(json.dumps(group) + "\n" for group in groups())
    command = java_command(str(HERE / "java" / "Assignments.java"))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers[WITH_BYTES:]:
        del answer["bytes"]
    ASSIGNMENTS.write_text("".join(json.dumps(answer, separators=(",", ":")) + "\n" for answer in answers))


def captured() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ASSIGNMENTS.read_text().splitlines()]


if __name__ == "__main__":
    capture()
