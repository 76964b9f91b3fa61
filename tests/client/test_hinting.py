"""Names in classes that are only found by mistake, and arguments that no call has."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any

import pytest

from oncelog.client.hinting import BY_POSITION, Calls, Hinting, explained, explained_poll, with_hints

pytestmark = pytest.mark.deterministic

CALLS = Calls(
    methods={"produce": "use send(topic)"},
    arguments={"send": {"timestamp": "use timestamp_ms"}, "wait": {"timeout_ms": "use timeout"}},
    constructor="make one with Shop(name)",
)


@with_hints(CALLS)
class Shop(metaclass=Hinting):
    def __init__(self, name: str) -> None:
        self.name = name

    def send(self, topic: str, timestamp_ms: int = 0) -> str:
        """Sends."""
        return f"{topic} at {timestamp_ms + 0}"

    async def wait(self, timeout: float = 1.0) -> float:
        return timeout

    @explained_poll({"timeout_ms": "use timeout"})
    def poll(self, timeout: float | None = 1.0, *, max_records: int | None = None) -> tuple[Any, Any]:
        return timeout, max_records


def test_what_is_right_is_done() -> None:
    shop = Shop("corner")
    assert shop.send("orders", timestamp_ms=5) == "orders at 5"
    assert (shop.poll(), shop.poll(None, max_records=3)) == ((1.0, None), (None, 3))
    with pytest.raises(StopIteration) as ended:
        shop.wait(2.0).send(None)
    assert ended.value.value == 2.0


@pytest.mark.parametrize("owner", [Shop, Shop("corner")], ids=["the class", "an object"])
def test_a_name_of_another_library_says_what_ours_is_called(owner: Any) -> None:
    with pytest.raises(AttributeError, match=r"^Shop has no produce\(\): use send\(topic\)$"):
        owner.produce  # noqa: B018
    assert not hasattr(owner, "produce")
    assert "produce" not in dir(owner)
    assert {"send", "wait", "poll"} <= {*dir(owner)}
    with pytest.raises(AttributeError, match="has no attribute 'sell'"):
        owner.sell  # noqa: B018


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Shop("corner").send("orders", timestamp=5), "Shop.send() takes no timestamp: use timestamp_ms"),
        (lambda: Shop("corner").wait(timeout_ms=5).send(None), "Shop.wait() takes no timeout_ms: use timeout"),
        (lambda: Shop("corner").poll(timeout_ms=5), "Shop.poll() takes no timeout_ms: use timeout"),
        (lambda: Shop("corner").poll(timeot=5), "Shop.poll() got an unexpected keyword argument 'timeot'"),
        (
            lambda: Shop("corner", name="shop"),
            "Shop.__init__() got multiple values for argument 'name'; make one with Shop(name)",
        ),
    ],
)
def test_an_argument_of_another_library_says_what_ours_is_called(call: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == said


def test_other_mistakes_are_left_as_they_are() -> None:
    shop: Any = Shop("corner")
    with pytest.raises(TypeError, match=r"^Shop\.send\(\) got an unexpected keyword argument 'topc'"):
        shop.send(topc=5)
    with pytest.raises(TypeError, match=r"^can only concatenate"):  # from inside
        shop.send("orders", "5")


def test_what_a_call_takes_can_still_be_looked_up() -> None:
    for name in ("send", "wait", "poll"):
        assert "arguments" not in inspect.signature(getattr(Shop, name)).parameters
        assert getattr(Shop, name).__qualname__ == f"Shop.{name}"
    assert inspect.iscoroutinefunction(Shop.wait)
    assert Shop.send.__doc__ == "Sends."
    assert [*inspect.signature(Shop).parameters] == ["name"]
    assert inspect.signature(Shop.poll, follow_wrapped=False).parameters.keys() >= {"timeout", "max_records"}


def test_a_subclass_may_have_such_names_and_be_abstract() -> None:
    class Counter(Shop, ABC):
        def produce(self) -> str:
            return "mine"

        @abstractmethod
        def price(self) -> int: ...

    class Stall(Counter):
        def price(self) -> int:
            return 5

    with pytest.raises(TypeError, match="abstract"):
        Counter("corner")  # type: ignore[abstract]
    assert Stall("corner").produce() == "mine"
    assert "produce" in dir(Stall("corner"))
    assert "produce" in dir(Stall)


def test_an_object_may_be_given_such_a_name() -> None:
    shop: Any = Shop("corner")
    shop.produce = "mine"
    assert shop.produce == "mine"


def test_a_name_that_the_class_has_is_no_hint() -> None:
    class Market(metaclass=Hinting):
        def produce(self) -> None: ...

    with pytest.raises(AssertionError, match="Market has produce"):
        with_hints(CALLS)(Market)


def test_too_many_arguments_by_position_say_which_have_names() -> None:
    @explained({BY_POSITION: "give the limit by name", "limits": "use limit"})
    def change(topic: str, *, limit: int = 0) -> int:
        return limit

    assert change("orders", limit=5) == 5
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given; give the limit by name$"):
        change("orders", 5)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"change\(\) takes no limits: use limit$"):
        change("orders", limits=5)  # type: ignore[call-arg]
