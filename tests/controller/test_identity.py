from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from oncelog.controller.identity import Identity, WrongDataFolder, check_noted, encode_id, load_or_create
from oncelog.log.storage import FileStorage
from tests.controller.support import counting_ids

# As `kafka.tools.StorageTool format` writes it.
KAFKA_FILE = """#
#Sun Nov 15 22:43:51 UTC 2026
node.id=1
directory.id=D7PcOVo9RrqXW9qI9in3cw
version=1
cluster.id=Yh0oGQSfSCW6wqNVAXcmlg
"""


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    made = load_or_create(FileStorage(), str(tmp_path), 3, counting_ids())
    assert made == Identity(encode_id(UUID(int=1)), 3, UUID(int=2))
    assert load_or_create(FileStorage(), str(tmp_path), 3, lambda: UUID(int=9)) == made


def test_a_file_that_kafka_wrote(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(KAFKA_FILE)
    found = load_or_create(FileStorage(), str(tmp_path), 1, counting_ids())
    assert found.cluster_id == "Yh0oGQSfSCW6wqNVAXcmlg"
    assert encode_id(found.directory_id) == "D7PcOVo9RrqXW9qI9in3cw"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KAFKA_FILE.replace("node.id=1", "node.id=2"), "belongs to node 2, and this is node 1"),
        (KAFKA_FILE.replace("version=1", "version=0"), "has version '0'"),
        (KAFKA_FILE.replace("node.id=1", ""), "cannot be read"),
        (KAFKA_FILE.replace("D7PcOVo9RrqXW9qI9in3cw", "short"), "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_folder_that_is_not_ours(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(WrongDataFolder, match=words):
        load_or_create(FileStorage(), str(tmp_path), 1, counting_ids())


def test_ids_do_not_look_like_options(tmp_path: Path) -> None:
    dashed = UUID(int=0xFB << 120)
    assert encode_id(dashed).startswith("-")
    ids = iter([dashed, UUID(int=1), dashed, UUID(int=2)])
    made = load_or_create(FileStorage(), str(tmp_path), 1, lambda: next(ids))
    assert made.directory_id == UUID(int=2)


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "orders-3", "recovery-point-offset-checkpoint"])
def test_a_folder_in_use_whose_file_is_gone_is_not_new(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(WrongDataFolder, match=f"is missing, and the folder is not new.*{name}.*oncelog doctor"):
        load_or_create(FileStorage(), str(tmp_path), 1, counting_ids())
    assert not (tmp_path / "meta.properties").exists()


def test_an_identity_that_is_not_the_noted_one() -> None:
    noted = Identity("cluster", 1, UUID(int=7))
    check_noted(noted, noted, "data")
    check_noted(noted, None, "data")
    for found in (noted._replace(cluster_id="clustes"), noted._replace(directory_id=UUID(int=8))):
        with pytest.raises(WrongDataFolder, match=r"meta\.properties is damaged"):
            check_noted(found, noted, "data")
