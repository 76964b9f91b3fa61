"""The demo's broker: killed and started again, with what it noticed summed up over its lives."""

from __future__ import annotations

import re
import time
import urllib.request

from oncelog.audit.ports import unused_port
from oncelog.broker.process import Broker
from oncelog.cli.demo_chronicle import Chronicle, Who
from oncelog.cli.demo_lifetime import Lifetime
from oncelog.cli.demo_member import SESSION_TIMEOUT_MS
from oncelog.cli.demo_outcome import Tally
from oncelog.cli.demo_screen import Screen
from oncelog.report import Tone

PARTITIONS = 6
DUPLICATES_METRIC = re.compile(r"^oncelog_duplicates_recognised_total (\S+)$", re.MULTILINE)


class MortalBroker(Lifetime):
    def __init__(self, chronicle: Chronicle, tally: Tally) -> None:
        self._chronicle = chronicle
        self._tally = tally
        self._metrics_port = unused_port()
        config = {
            "metrics.port": self._metrics_port,
            "num.partitions": PARTITIONS,
            "group.min.session.timeout.ms": SESSION_TIMEOUT_MS,
        }
        self.process = Broker(port=unused_port(), config=config)

    def open(self) -> None:
        self.process.start()
        self._chronicle.begins(Who.BROKER)

    def close(self) -> None:
        self.process.close()

    @property
    def bootstrap_servers(self) -> str:
        return self.process.bootstrap_servers

    def kill(self, screen: Screen) -> None:
        """And start it again."""
        self.count_duplicates()
        self._chronicle.ends(Who.BROKER)
        self._chronicle.note(Who.BROKER, "kill -9", Tone.BAD)
        self.process.kill()
        begun = time.monotonic()
        self.process.start()
        self._chronicle.begins(Who.BROKER)
        self._tally.kills += 1
        self._tally.restarts_ms.append((time.monotonic() - begun) * 1_000)
        screen.tell(
            f"kill -9 number {self._tally.kills} of the broker: ready after {self._tally.restarts_ms[-1]:.0f} ms"
        )

    def count_duplicates(self) -> None:
        """Add what the running broker counted; a restarted one counts from 0 again. Once for each of its lives."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            found = DUPLICATES_METRIC.search(answer.read().decode())
        self._tally.duplicates_recognised += int(float(found[1])) if found else 0
