"""What the broker's process holds, as /proc and its data folder tell. Linux only; a few milliseconds each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    rss_mb: float
    pss_mb: float
    descriptors: int
    threads: int
    sockets: int
    """Those of listeners and of the loop included."""
    disk_mb: float
    cpu: float
    """Of one core, since the sample before."""
    counts: dict[str, int]
    """What the load has used up so far."""
    failures: int

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class Sampler:
    """Asks about one process."""

    def __init__(self, pid: int, data_dir: Path) -> None:
        self._proc = Path(f"/proc/{pid}")
        self._data_dir = data_dir
        self._cpu_s, self._at_s = self._used_cpu_s(), 0.0

    def take(self, at_s: float, counts: dict[str, int], failures: int) -> Sample:
        status = _fields(self._proc / "status")
        links = list(self._links())
        cpu_s = self._used_cpu_s()
        cpu = (cpu_s - self._cpu_s) / max(at_s - self._at_s, 0.001)
        self._cpu_s, self._at_s = cpu_s, at_s
        return Sample(
            at_s=round(at_s, 1),
            rss_mb=status["VmRSS"] * 1024 / 1e6,
            pss_mb=_fields(self._proc / "smaps_rollup")["Pss"] * 1024 / 1e6,
            descriptors=len(links),
            threads=status["Threads"],
            sockets=sum(link.startswith("socket:") for link in links),
            disk_mb=_disk_bytes(self._data_dir) / 1e6,
            cpu=round(cpu, 3),
            counts=counts,
            failures=failures,
        )

    def _links(self) -> Iterator[str]:
        for name in os.listdir(self._proc / "fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(self._proc / "fd" / name)

    def _used_cpu_s(self) -> float:
        after_name = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


def _fields(path: Path) -> dict[str, int]:
    """The lines `Name:  NUMBER ...` of a file of /proc."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found


def _disk_bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # deleted meanwhile
                total += os.lstat(os.path.join(path, name)).st_blocks * BLOCK_BYTES
    return total
