"""The law of the rooms: imports go downward only, and cores touch no clock, socket, thread or file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

FLOORS = [
    {"named_tuple"},
    {"types", "errors", "clock", "printable", "sqlite_file", "child_processes"},
    {"records"},
    {"wire"},
    {"log"},
    {"coordinator", "replication", "controller"},
    {"client"},
    {"broker"},
    {"producer", "consumer", "admin", "audit", "faults", "doctor"},
    {"once", "processing", "report"},
    {"spark"},
    {"cli", "web"},
    {"testing"},
    {"pytest_plugin"},
]
FLOOR_OF = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}

FORBIDDEN_IN_CORES = {
    "asyncio", "socket", "threading", "time", "random", "os", "pathlib", "subprocess", "selectors", "select",
    "concurrent", "multiprocessing", "tempfile", "shutil", "io", "fcntl", "signal", "uvloop", "secrets",
    "oncelog.clock", "oncelog.log.storage.FileStorage",
}  # fmt: skip

# What may touch the world, and why.
SHELLS = {
    "oncelog": "the package itself: lazy exports only",
    "oncelog.__main__": "process entry",
    "oncelog.clock": "the one reader of the wall clock",
    "oncelog.child_processes": "asks the system for them, and kills some",
    "oncelog.sqlite_file": "opens SQLite files, and waits for their locks",
    "oncelog.records.kernel": "reads the environment once, to choose a kernel",
    "oncelog.log.storage": "the one module that opens files of the log",
    "oncelog.log.folder_lock": "the lock on a folder of records",
    "oncelog.broker.server": "the listener, signals, timers, threads",
    "oncelog.broker.listener": "accepts connections",
    "oncelog.broker.descriptors": "the process's descriptors: how many there may be, and a second one of a socket",
    "oncelog.broker.metrics_endpoint": "the metrics page: its connections, its thread",
    "oncelog.broker.connection": "one client's socket",
    "oncelog.broker.outbox": "what leaves by that socket",
    "oncelog.broker.process": "the broker as a child process",
    "oncelog.broker.quota.meter": "measures what a request costs its client",
    "oncelog.client.blocking": "sockets and backoff of the blocking client",
    "oncelog.client.loop_future": "a future as asyncio's: its errors, and the loop that calls whoever waits",
    "oncelog.client.loop_intake": "names what asyncio is to take such a future for",
    "oncelog.client.standard_futures": "how threads and event loops of the standard library wait for a record's result",
    "oncelog.client.selecting": "runs a client core in a thread: sockets, the wait for them, the clock",
    "oncelog.client.standing_in": "a user's thread in the place of that thread: one socket, the wait for it, the clock",
    "oncelog.client.turn": "which of the two it is, and where they wait",
    "oncelog.client.sockets": "addresses and sockets for the drivers, and their clock",
    "oncelog.client.streaming": "runs a client core in an asyncio loop",
    "oncelog.producer.producer": "the sender's thread, and users' threads that wait",
    "oncelog.producer.news": "where users' threads wait for the sender",
    "oncelog.producer.sender_thread": "the sender's thread at the program's end, and in a forked child",
    "oncelog.producer.async_producer": "the event loop",
    "oncelog.producer.transactions": "users' threads that wait for their transaction",
    "oncelog.producer.async_transactions": "tasks that do the same",
    "oncelog.producer.table": "threads that wait for memory while they send a table",
    "oncelog.producer.async_table": "tasks that do the same",
    "oncelog.producer.async_unaccepted": "coroutines that wait for both",
    "oncelog.producer.assembly": "reads the wall clock for timestamps; makes sources of chance",
    "oncelog.consumer.consumer": "the core's thread, and the user's that waits for it",
    "oncelog.consumer.async_consumer": "the event loop",
    "oncelog.consumer.assembly": "reads the wall clock; makes ids and sources of chance",
    "oncelog.admin.hearing": "waits for brokers that hear late of a change",
    "oncelog.admin.transactions": "clocks: how long a transaction has written nothing, how long to ask how one ended",
    "oncelog.audit.ports": "finds free ports",
    "oncelog.producer.spooling": "the folder of the spool: its lock, and waiting for the disk",
    "oncelog.once.shipment": "a thread in which a producer may wait, and how long it is waited for",
    "oncelog.once.absence": "the clock and the timer behind warnings about servers that are away",
    "oncelog.once.elsewhere": "threads that ask servers which may be away",
    "oncelog.once.handlers": "which signals' handlers are installed",
    "oncelog.once.runner": "the loop over a consumer: its clock, its waits, and who stops it",
    "oncelog.processing.threads": "workers as threads: their clock, their waits, and who stops them",
    "oncelog.processing.tasks": "the event loop, with the same",
    "oncelog.spark.package": "writes the files that bring oncelog to executors",
    "oncelog.spark.moments": "dies, waits or fails where a test says so",
    "oncelog.spark.reaching": "waits for a broker",
    "oncelog.spark.watch.endpoint": "a page for Prometheus: its socket, its thread",
    "oncelog.spark.watch.listener": "the clock when Spark reports",
    "oncelog.spark.watch.queries": "a lock between Spark's thread and whoever asks",
    "oncelog.spark.workers": "asks the Python of Spark's workers, and an executor",
    "oncelog.spark.sink.driver": "reads the clock for a commit",
    "oncelog.spark.sink.journal_topic": "waits a moment for an append to show",
    "oncelog.spark.sink.slot_writer": "reads the clock when a transaction begins",
    "oncelog.spark.sink.stored_records": "waits for the last stable offset",
    "oncelog.spark.source.pool": "consumers that wait for the next task: their process, their age",
    "oncelog.spark.source.reading": "a task that waits for records: its clock",
    "oncelog.spark.source.stream": "the clock: minOffsetsPerTrigger, and pauses before a partition counts as gone",
    "oncelog.spark.pipeline.functions": "imports what users wrote, by file and by name",
    "oncelog.spark.pipeline.session": "starts Spark's JVM, and sends its stderr to a file",
    "oncelog.spark.pipeline.world": "folders, the master's port",
    "oncelog.spark.pipeline.tables": "whether the file of SQLite is there",
    "oncelog.spark.pipeline.running": "signals, the queue of Spark's reports, waiting for batches to end",
    "oncelog.spark.audit.session": "starts Spark's JVM, and sends its stderr to a file",
    "oncelog.spark.tools.avro_values": "bytes in memory as files, which is how fastavro reads and writes",
    "oncelog.faults.connection": "the two sockets of one client behind the fault proxy",
    "oncelog.faults.proxy": "listeners and their thread; makes the sources of chance from the seed",
    "oncelog.spark.table.writer": "waits before a commit whose answer was lost is asked for again",
    "oncelog.spark.table.sqlite_store": "the files of SQLite and of its staging areas",
    "oncelog.spark.checkpoint": "reads the files of a checkpoint",
}
SHELL_ROOMS = {"cli"}


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((SOURCE / "oncelog").rglob("*.py")):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found.append((".".join(parts), path))
    return found


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "oncelog" else None


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports when it runs; those for type checkers alone do not count."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
            names.add(node.module or "")
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return names


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_go_downward_only(module: str, path: Path) -> None:
    room = room_of(module)
    if room is None or room.startswith("_"):
        return
    assert room in FLOOR_OF, f"{module} lives in a room that the map does not know"
    for imported in imports_of(path):
        other = room_of(imported)
        if other is None or other == room or other.startswith("_"):
            continue
        assert other in FLOOR_OF, f"{module} imports {imported} from an unknown room"
        assert FLOOR_OF[other] < FLOOR_OF[room], f"{module} imports upward or sideways: {imported}"


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_cores_touch_no_clock_socket_thread_or_file(module: str, path: Path) -> None:
    if module in SHELLS or room_of(module) in SHELL_ROOMS:
        return
    for imported in imports_of(path):
        top = imported.split(".")[0]
        assert top not in FORBIDDEN_IN_CORES, f"{module} is a core and imports {imported}"
        assert imported not in FORBIDDEN_IN_CORES, f"{module} is a core and imports {imported}"


def test_the_law_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import socket\nfrom oncelog.broker import server\n")
    assert {"socket", "oncelog.broker.server"} <= imports_of(bad)
