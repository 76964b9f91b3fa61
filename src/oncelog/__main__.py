"""`python -m oncelog` is `oncelog`, and what `oncelog.Broker` starts."""

from __future__ import annotations

import os
import sys

from oncelog.cli.main import main


def run() -> int:
    if "ONCELOG_PARENT_PID" not in os.environ:
        return main()
    from oncelog.broker.process import following_parent

    with following_parent():
        return main()


if __name__ == "__main__":
    sys.exit(run())
