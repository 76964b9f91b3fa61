from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.client.fetch.sessions import MAX_EPOCH, FetchSession, Key
from oncelog.wire.fetch import FetchPartition, FetchTopic, ForgottenTopic

TOPIC, OTHER = UUID(int=1), UUID(int=2)


def partition(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, 0, offset, -1, -1, 100)


def wanted(*offsets: int, topic: UUID | str = TOPIC) -> dict[Key, FetchPartition]:
    return {(topic, index): partition(index, offset) for index, offset in enumerate(offsets)}


def say(
    session: FetchSession, wanted: dict[Key, FetchPartition], turn: int = 0
) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
    """What a request says when this is wanted, and nothing else."""
    for key in [key for key in session._wanted if key not in wanted]:
        session.drop(key)
    for key, partition in wanted.items():
        session.want(key, partition)
    return session.say(turn)


def established(*offsets: int) -> FetchSession:
    session = FetchSession()
    say(session, wanted(*offsets))
    session.learned(0, 77, wanted(*offsets))
    return session


def test_the_first_request_says_everything() -> None:
    session = FetchSession()
    assert (session.session_id, session.epoch) == (0, 0)
    assert say(session, wanted(5, 6)) == ([FetchTopic("", TOPIC, [partition(0, 5), partition(1, 6)])], [])


def test_later_ones_say_what_changed() -> None:
    session = established(5, 6, 7)
    assert (session.session_id, session.epoch) == (77, 1)
    new = wanted(5, 9) | {(OTHER, 0): partition(0)}
    named, forgotten = say(session, new)
    assert named == [FetchTopic("", TOPIC, [partition(1, 9)]), FetchTopic("", OTHER, [partition(0)])]
    assert forgotten == [ForgottenTopic("", TOPIC, [2])]
    session.learned(0, 77, [])
    assert session.epoch == 2
    assert say(session, new) == ([], [])


def test_epochs_begin_again_behind_the_largest() -> None:
    session = established(5)
    session.epoch = MAX_EPOCH
    session.learned(0, 77, [])
    assert session.epoch == 1


@pytest.mark.parametrize(("code", "session_id"), [(70, 0), (71, 77), (106, 77), (-1, 77)])
def test_after_an_error_everything_is_said_again(code: int, session_id: int) -> None:
    """A session that the broker may still have is named, so that it ends."""
    session = established(5, 6)
    session.learned(code, 0, [])
    assert (session.session_id, session.epoch) == (session_id, 0)
    named, forgotten = say(session, wanted(5, 6))
    assert named == [FetchTopic("", TOPIC, [partition(0, 5), partition(1, 6)])]
    assert forgotten == []


@pytest.mark.parametrize("told", [wanted(5), wanted(5, 6, 7)])
def test_a_full_answer_must_name_exactly_what_was_asked(told: dict[Key, FetchPartition]) -> None:
    session = FetchSession()
    say(session, wanted(5, 6))
    session.learned(0, 77, told)
    assert session.is_full


def test_an_answer_about_what_was_not_asked_ends_the_session() -> None:
    session = established(5)
    session.learned(0, 77, wanted(5, 6))
    assert session.is_full


def test_a_broker_that_has_no_room_for_sessions() -> None:
    session = FetchSession()
    say(session, wanted(5))
    session.learned(0, 0, wanted(5))
    assert (session.session_id, session.epoch) == (0, 0)


def test_names_and_ids_do_not_mix() -> None:
    session = established(5)
    session.drop_all()
    named, forgotten = say(session, wanted(5, topic="t"))
    assert (session.session_id, session.epoch) == (77, 0)
    assert named == [FetchTopic("t", None, [partition(0, 5)])]
    assert forgotten == []
