"""The code blocks of a page, and a reader who runs them as they are printed.

Pure parsing, and `Reader`, which runs. Python blocks of one page are one session, as in a console; one that begins with
`# NAME.py` is that file. Of console blocks the lines after `$ ` are run by bash, and must succeed; one that is shown to
print `ready` is left running to the end of the page. A block that cannot run has a comment before it that says why:
`<!-- not run: ... -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
FILE = re.compile(r"# ([\w.]+\.py)\n")
PROMPT = "$ "
CODE = ("python", "console")
COMMAND_TIMEOUT_S = 120


class Block(NamedTuple):
    language: str
    text: str
    line: int
    not_run: str | None


class Command(NamedTuple):
    line: str
    printed: str
    """What the page shows after it."""

    @property
    def stays(self) -> bool:
        return self.printed.startswith("ready ")


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found["language"], found["text"], text.count("\n", 0, found.start("text")) + 1, found["why"])
        for found in BLOCK.finditer(text)
    ]


def commands_of(block: str) -> Iterator[Command]:
    for found in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
        yield Command(found[1], found[2])


class Reader(AbstractContextManager["Reader"]):
    def __init__(self, folder: Path, replaced: Mapping[str, str], programs: Path | None = None) -> None:
        """`replaced` are the addresses that servers have here; `programs` is a folder of what a reader has installed
        besides."""
        self._folder = folder
        self._replaced = replaced
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._running = ExitStack()
        (folder / "venv").symlink_to(sys.prefix)
        paths = [str(Path(sys.prefix) / "bin"), *([str(programs)] if programs else []), os.environ["PATH"]]
        self._environment = {**os.environ, "PATH": os.pathsep.join(paths)}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._names.clear()  # clients, before their brokers are gone
        self._running.close()

    def run(self, page: str, block: Block) -> None:
        text = block.text
        for printed, here in self._replaced.items():
            text = text.replace(printed, here)
        if block.language == "console":
            for command in commands_of(text):
                self._run_command(command)
            return
        file = FILE.match(text)
        if file is not None:
            (self._folder / file[1]).write_text(text)
            return
        exec(compile("\n" * (block.line - 1) + text, page, "exec"), self._names)

    def _run_command(self, command: Command) -> None:
        if command.stays:
            self._start(command.line)
            return
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"$ {command.line}\n{done.stdout}{done.stderr}"

    def _start(self, line: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        self._running.callback(process.communicate, timeout=COMMAND_TIMEOUT_S)
        self._running.callback(process.terminate)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("ready "), f"$ {line}\n{first}"
