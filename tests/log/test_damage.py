"""Damage at rest: every file of a partition's folder and every checkpoint beside it, deleted, emptied, cut, flipped or
put back as it was before, after a clean stop and after a kill. What is served is right, or the partition is offline and
says so; nothing aborted is ever handed out, and no offset is given out twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncelog.errors import KafkaStorageError
from tests.log.damaging import CONFIG, DAMAGED, FOLDER, TOPIC_IDS, Template, make_template, open_manager, verdict
from tests.log.driver import START_MS


@pytest.fixture(scope="module", params=["stopped", "killed"])
def template(request: pytest.FixtureRequest) -> Template:
    return make_template(is_killed=request.param == "killed")


Damage = Callable[[bytes], Iterator[bytes]]


def emptied(content: bytes) -> Iterator[bytes]:
    yield b""


def cut(content: bytes) -> Iterator[bytes]:
    for kept in {len(content) // 2, max(len(content) - 1, 0), max(len(content) - 34, 0)}:
        yield content[:kept]


def flipped(content: bytes) -> Iterator[bytes]:
    """Every second byte of a text, some of others; of a batch also its offset and its leader epoch."""
    size = len(content)
    is_text = content.isascii() and content.endswith(b"\n")
    some = {0, 7, 11, 13, 15, 16, 18, 20, 22, 33, 40, size - 20, size - 1}
    for position in range(0, size, 2) if is_text else sorted(some & set(range(size))):
        changed = bytearray(content)
        changed[position] ^= 1 + position % 4
        yield bytes(changed)


def may_end_early(template: Template, path: str) -> bool:
    """Bytes cut from the growing segment after a kill cannot be told from a write that the kill interrupted."""
    logs = [each for each in template.files() if each.endswith(".log")]
    return template.is_killed and path == logs[-1]


def judge(template: Template, path: str, content: bytes | None) -> str:
    disk = template.disk.copy()
    if content is None:
        disk.remove(path)
    else:
        disk.content(path)[:] = content
    return verdict(template, disk, may_end_early=may_end_early(template, path))


FINE = {"right", "offline", "refused"}


@pytest.mark.parametrize("damage", [emptied, cut, flipped])
def test_no_damage_goes_unnoticed(damage: Damage, template: Template) -> None:
    verdicts = {}
    for path in template.files():
        content = bytes(template.disk.content(path))
        for number, changed in enumerate(damage(content)):
            if changed != content:
                verdicts[f"{path} {number}"] = judge(template, path, changed)
    assert {what: found for what, found in verdicts.items() if found not in FINE} == {}


def test_no_lost_file_goes_unnoticed(template: Template) -> None:
    verdicts = {path: judge(template, path, None) for path in template.files()}
    assert {what: found for what, found in verdicts.items() if found not in FINE} == {}
    assert {verdicts[path] for path in verdicts if path.endswith((".txnindex", ".snapshot", "index"))} == {"right"}
    lost = {verdicts[path] for path in verdicts if path.endswith(".log")}
    assert lost == {"offline"}


def test_no_older_version_goes_unnoticed(template: Template) -> None:
    """Each file as it was after the run before; and the mark of that run's clean stop."""
    both = set(template.older.paths("")) & {*template.files(), f"{FOLDER}/.kafka_cleanshutdown"}
    verdicts = {}
    for path in sorted(both):
        disk = template.disk.copy()
        disk.open(path, create=True)
        disk.content(path)[:] = template.older.content(path)
        verdicts[path] = verdict(template, disk, may_end_early=False)
    assert {what: found for what, found in verdicts.items() if found not in FINE} == {}
    assert verdicts[f"{FOLDER}/.kafka_cleanshutdown"] == "right"


def test_a_lost_folder_is_not_taken_for_a_new_one(template: Template) -> None:
    disk = template.disk.copy()
    disk.remove_directory(f"{FOLDER}/{DAMAGED}")
    assert verdict(template, disk, may_end_early=False) == "offline"
    manager = open_manager(disk)
    with pytest.raises(KafkaStorageError, match="is missing, with at least"):
        manager.create(DAMAGED, TOPIC_IDS[DAMAGED], CONFIG, START_MS)


def test_without_damage_all_is_right(template: Template) -> None:
    assert verdict(template, template.disk.copy(), may_end_early=False) == "right"
