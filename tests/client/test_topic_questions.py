"""`TopicQuestions`: asked until a broker answers, and of nobody who has given up."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from oncelog.client.network_events import Answered, Lost, LostKind
from oncelog.client.topic_questions import NEVER_MS, TopicQuestions
from oncelog.wire.api import ApiKey

NOW_MS = 1_000
BACKOFF_MS = 100


class PlayedNetwork:
    def __init__(self) -> None:
        self.node: int | None = 3
        self.sent: list[dict[str, Any]] = []
        self.tags: list[Any] = []

    def least_loaded(self, now_ms: int) -> int | None:
        return self.node

    def send(self, node_id: int, api_key: ApiKey, body: Any, now_ms: int, *, tag: Any) -> None:
        assert (node_id, api_key) == (3, ApiKey.METADATA)
        self.sent.append(body)
        self.tags.append(tag)


class Scene:
    def __init__(self) -> None:
        self.network = PlayedNetwork()
        self.questions = TopicQuestions(self.network, BACKOFF_MS)  # type: ignore[arg-type]
        self.told: list[set[str]] = []

    def ask(self, topics: list[str] | None) -> Any:
        return self.questions.ask(topics, lambda found: self.told.append(set(found)))

    def answer(self) -> bool:
        topic = {"name": "orders", "topic_id": UUID(int=1), "is_internal": False, "partitions": [], "error_code": 0}
        body = {"brokers": [], "topics": [topic], "cluster_id": "c", "controller_id": 1}
        return self.questions.handle(Answered(self.network.tags.pop(), 3, ApiKey.METADATA, 9, body, NOW_MS), NOW_MS)

    def lose(self) -> bool:
        lost = Lost(self.network.tags.pop(), 3, "reset", LostKind.NEVER_SENT)
        return self.questions.handle(lost, NOW_MS)


def test_asks_once_and_creates_nothing() -> None:
    scene = Scene()
    scene.ask(["orders"])
    assert scene.questions.poll(NOW_MS) == NEVER_MS
    assert scene.questions.poll(NOW_MS) == NEVER_MS
    assert scene.network.sent == [{"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}]
    assert scene.answer()
    assert scene.told == [{"orders"}]


def test_all_topics() -> None:
    scene = Scene()
    scene.ask(None)
    scene.questions.poll(NOW_MS)
    assert scene.network.sent == [{"topics": None, "allow_auto_topic_creation": False}]


def test_waits_for_a_broker() -> None:
    scene = Scene()
    scene.network.node = None
    scene.ask(None)
    assert scene.questions.poll(NOW_MS) == NEVER_MS
    assert not scene.network.sent
    scene.network.node = 3
    scene.questions.poll(NOW_MS)
    assert len(scene.network.sent) == 1


def test_asks_again_after_a_loss_with_a_pause() -> None:
    scene = Scene()
    scene.ask(None)
    scene.questions.poll(NOW_MS)
    assert scene.lose()
    assert scene.questions.poll(NOW_MS) == BACKOFF_MS
    assert len(scene.network.sent) == 1
    scene.questions.poll(NOW_MS + BACKOFF_MS)
    assert scene.answer()
    assert scene.told == [{"orders"}]


def test_who_gave_up_is_not_asked_for_and_not_told() -> None:
    scene = Scene()
    scene.ask(None).cancel()
    scene.questions.poll(NOW_MS)
    assert not scene.network.sent
    question = scene.ask(None)
    scene.questions.poll(NOW_MS)
    question.cancel()
    assert scene.answer()
    assert not scene.told


def test_other_answers_are_others() -> None:
    assert not Scene().questions.handle(Answered(ApiKey.METADATA, 3, ApiKey.METADATA, 9, {}, NOW_MS), NOW_MS)
