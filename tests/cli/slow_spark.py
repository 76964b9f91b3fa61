"""In the place of the demo's Spark driver: ends as Spark does on a busy machine, as often as its first word says.

python -m tests.cli.slow_spark TIMES MESSAGE _ FOLDER STARTED
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(times: str, message: str, _: str, folder: str, started: str) -> int:
    lives = Path(folder) / "lives"
    count = len(lives.read_text()) if lives.exists() else 0
    lives.write_text("x" * (count + 1))
    if count < int(times):
        print(message, flush=True)
        return 1
    Path(started).touch()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
