"""`oncelog.named_tuple.NamedTuple` makes what `typing.NamedTuple` makes."""

from __future__ import annotations

import pickle
import typing

import pytest

from oncelog.named_tuple import NamedTuple


class Ours(NamedTuple):
    """A range of offsets."""

    first: int
    last: int = 7
    name: str | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @classmethod
    def empty(cls) -> Ours:
        return cls(0, -1)


class Theirs(typing.NamedTuple):
    """A range of offsets."""

    first: int
    last: int = 7
    name: str | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def test_what_a_class_tells_of_itself() -> None:
    for attribute in ("_fields", "_field_defaults", "__match_args__", "__doc__", "__module__"):
        assert getattr(Ours, attribute) == getattr(Theirs, attribute), attribute
    assert (Ours.__name__, Ours.__qualname__, Ours.__mro__[1:]) == ("Ours", "Ours", (tuple, object))
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)


def test_values() -> None:
    ours, theirs = Ours(1, last=3), Theirs(1, last=3)
    assert ours == theirs == (1, 3, None)
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert (ours.count, Ours.empty().count) == (3, 0)
    assert ours._replace(name="x") == (1, 3, "x")
    assert ours._asdict() == {"first": 1, "last": 3, "name": None}
    assert Ours._make([4, 5, None]) == (4, 5, None)
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert type(pickle.loads(pickle.dumps(ours))) is Ours


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Ours()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"non-default argument.*follows default"):

        class Wrong(NamedTuple):
            first: int = 0
            last: int  # type: ignore[misc]

    with pytest.raises(AttributeError):
        Ours(1).first = 2  # type: ignore[misc]


def test_one_within_a_function_knows_where_it_is_from() -> None:
    class Local(NamedTuple):
        only: int

    assert Local.__qualname__.endswith("<locals>.Local")
    assert Local(1).only == 1
