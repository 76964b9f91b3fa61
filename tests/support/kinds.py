"""The two kinds of tests, and the law that keeps them apart.

A `deterministic` test has the same outcome on any machine, however busy: no real time, thread, process or connection
takes part in it. Every other test is `real`. The kind is derived from what the test's code can reach (`kind_of`): its
fixtures, its helpers in this tree, the parts of the standard library that touch the world, oncelog's shells. Where that
is wrong, a marker says so, on a test, a class or a whole module; the nearest one counts.

Deriving may err, so it is not trusted: while a deterministic test runs, whoever starts a thread or a process, binds or
connects a socket, sleeps or lets a timer of an event loop fire fails that test (`Guard`). A real test that could be
deterministic is only run later than it might be.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
import types
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import pytest

DETERMINISTIC = "deterministic"
REAL = "real"

# Fixtures that ask for others by a name that is made up at run time.
REAL_FIXTURES = frozenset({"broker", "both_brokers"})
# What touches the world; a module alone stands for everything in it.
REAL_NAMES = frozenset(
    {
        "aiokafka",
        "concurrent.futures.thread",
        "confluent_kafka",
        "multiprocessing",
        "os.fork",
        "psycopg",
        "socket.create_connection",
        "socket.create_server",
        "socket.socket",
        "subprocess",
        "threading.Barrier",
        "threading.Thread",
        "threading.Timer",
        "time.sleep",
        "oncelog.broker.metrics_endpoint",
        "oncelog.broker.process",
        "oncelog.broker.server",
        "oncelog.client.blocking",
        "oncelog.client.selecting",
        "oncelog.client.standing_in",
        "oncelog.consumer.async_consumer",
        "oncelog.consumer.consumer",
        "oncelog.faults.proxy",
        "oncelog.producer.async_producer",
        "oncelog.producer.producer",
    }
)
REAL_MODULES = frozenset(name for name in REAL_NAMES if "." not in name or name.startswith(("oncelog.", "concurrent.")))
# Modules of which a function may name a part by its attribute, as in `time.sleep`.
PARTLY_REAL = frozenset({"os", "socket", "threading", "time", "oncelog"})
OWN_CODE = "tests."


def kind_of(item: pytest.Item) -> str:
    """What the nearest marker says, else what the test's code can reach."""
    for marker in item.iter_markers():
        if marker.name in (DETERMINISTIC, REAL):
            return marker.name
    return REAL if _is_real(item) else DETERMINISTIC


def _is_real(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return True
    if not REAL_FIXTURES.isdisjoint(item.fixturenames):
        return True
    return any(_reaches_the_world(root) for root in _roots(item))


def _roots(item: pytest.Function) -> Iterator[Any]:
    yield item.function
    if item.cls is not None:
        yield from (vars(item.cls)[name] for name in item.function.__code__.co_names if name in vars(item.cls))
    for name in item.fixturenames:
        for definition in item._fixtureinfo.name2fixturedefs.get(name, ()):
            yield definition.func
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        yield from callspec.params.values()


def _reaches_the_world(root: Any) -> bool:
    """Whether it is real, or names what is; a value among the parameters counts as its class."""
    return _reaches(root if isinstance(root, (types.FunctionType, type)) else type(root))


_reaching: dict[int, tuple[Any, bool]] = {}
"""What is known already, by identity; each is held, so that no other takes its identity."""


def _reaches(root: Any) -> bool:
    """Whether `root`, or what it names and what that names in turn, as far as it is code of these tests, is real.

    Each thing is looked at once for all tests: where nothing real was found, nothing that was seen on the way reaches
    anything real; where something was, all that led to it does.
    """
    came_from: dict[int, tuple[Any, Any]] = {id(root): (root, None)}
    ahead = [root]
    while ahead:
        found = ahead.pop()
        known = _reaching.get(id(found))
        if known[1] if known is not None else _is_named(found):
            while found is not None:
                _reaching[id(found)] = (found, True)
                found = came_from[id(found)][1]
            return True
        if known is not None:
            continue
        for named in _named_by(found):
            if id(named) not in came_from:
                came_from[id(named)] = (named, found)
                ahead.append(named)
    _reaching.update((key, (found, False)) for key, (found, _) in came_from.items())
    return False


def _is_named(found: Any) -> bool:
    if isinstance(found, types.ModuleType):
        return found.__name__.split(".")[0] in REAL_NAMES or found.__name__ in REAL_MODULES
    if not isinstance(found, type) and not callable(found):
        return False
    module = getattr(found, "__module__", None)
    if not isinstance(module, str):
        return False
    name = f"{module}.{getattr(found, '__qualname__', '')}"
    return name in REAL_NAMES or module in REAL_MODULES or module.split(".")[0] in REAL_NAMES


def _named_by(found: Any) -> Iterable[Any]:
    """What a piece of these tests' own code mentions."""
    found = _unwrapped(found)
    if isinstance(found, types.FunctionType):
        return _named_by_function(found) if _is_own(found) else ()
    if isinstance(found, type):
        return [*found.__bases__, *vars(found).values()] if _is_own(found) else ()
    return (type(found),) if _is_own(type(found)) else ()


def _unwrapped(found: Any) -> Any:
    """The function within a decorator, a property, a method, a fixture or a test of Hypothesis."""
    for _ in range(8):  # none is wrapped more often
        hypothesis = getattr(found, "hypothesis", None)
        inner = getattr(hypothesis, "inner_test", None)
        for name in ("__wrapped__", "__func__", "fget", "func"):
            inner = inner or getattr(found, name, None)
        if inner is None or isinstance(found, type):
            break
        found = inner
    return found


def _is_own(found: Any) -> bool:
    module = getattr(found, "__module__", None)
    return isinstance(module, str) and (module.startswith(OWN_CODE) or module == "conftest" or "." not in module)


def _named_by_function(function: types.FunctionType) -> Iterator[Any]:
    for code in _codes(function.__code__):
        for name in code.co_names:
            value = function.__globals__.get(name, sys.modules.get(name))
            if value is None:
                continue
            yield value
            if isinstance(value, types.ModuleType) and _has_parts(value):
                yield from (getattr(value, part) for part in code.co_names if part in dir(value))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing is in it yet
            continue


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _has_parts(module: types.ModuleType) -> bool:
    return module.__name__ in PARTLY_REAL or module.__name__.startswith(OWN_CODE)


class NotDeterministicError(AssertionError):
    """A deterministic test did what only a real one may."""


FORBIDDEN_EVENTS = frozenset(
    {
        "_thread.start_new_thread",
        "_thread.start_joinable_thread",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
    }
)
"""Names of Python's audit events; that of `time.sleep` came with Python 3.13."""


class Guard:
    """Fails the deterministic test that is running when it touches the world.

    It listens to Python's audit events, which nothing can go round. A thread that an earlier, real test left behind is
    not the test's fault: only the main thread is looked at.
    """

    def __init__(self) -> None:
        self._test: str | None = None
        self._deeds: list[str] = []

    def install(self) -> None:
        """For the rest of the process: an audit hook cannot be taken back."""
        sys.addaudithook(self._heard)
        time.sleep = _guarded_sleep(self, time.sleep)
        asyncio.TimerHandle._run = functools.partialmethod(_run_timer, self)  # type: ignore[assignment]
        threading.Condition.wait = functools.partialmethod(_wait, self, threading.Condition.wait)  # type: ignore[assignment]

    def watch(self, test: str) -> None:
        self._test, self._deeds = test, []

    def leave(self) -> None:
        """The test has ended; it fails even if it caught what it was told."""
        deeds, self._test = self._deeds, None
        if deeds:
            raise NotDeterministicError(self._complaint(deeds[0]))

    def forget(self) -> None:
        self._test = None

    def forgive(self) -> None:
        """For tests of the guard itself."""
        self._deeds.clear()

    def refuse(self, deed: str) -> None:
        if self._test is not None and threading.current_thread() is threading.main_thread():
            self._deeds.append(deed)
            raise NotDeterministicError(self._complaint(deed))

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._test is not None and event in FORBIDDEN_EVENTS:
            self.refuse(event)

    def _complaint(self, deed: str) -> str:
        return f"{deed} in a test that counts as deterministic: mark it with pytest.mark.real, or do without"


def _guarded_sleep(guard: Guard, sleep: Callable[[float], None]) -> Callable[[float], None]:
    @functools.wraps(sleep)
    def guarded(seconds: float) -> None:
        guard.refuse("time.sleep")
        sleep(seconds)

    guarded.__module__ = "time"
    return guarded


def _run_timer(timer: asyncio.TimerHandle, guard: Guard) -> None:
    guard.refuse("a timer of an event loop has fired")
    asyncio.Handle._run(timer)


def _wait(condition: threading.Condition, guard: Guard, wait: Any, timeout: float | None = None) -> bool:
    if timeout is None or timeout > 0:
        guard.refuse("threading.Condition.wait")
    waited: bool = wait(condition, timeout)
    return waited


class Kinds:
    """The plugin: each test gets its kind as a marker, and deterministic ones are guarded."""

    def __init__(self) -> None:
        self.guard = Guard()
        self.guard.install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            kind = kind_of(item)
            if next(item.iter_markers(kind), None) is None:
                item.add_marker(kind)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._guarded(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._guarded(item))

    def _guarded(self, item: pytest.Item) -> Generator[None, Any, Any]:
        if kind_of(item) == REAL:
            return (yield)
        self.guard.watch(item.nodeid)
        try:
            result = yield
        except BaseException:
            self.guard.forget()
            raise
        self.guard.leave()
        return result
