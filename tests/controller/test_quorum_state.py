from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.controller.quorum_state import NO_QUORUM, QuorumState, read_quorum_state
from oncelog.controller.records import DamagedMetadata
from oncelog.log.storage import FileStorage

# As Kafka 4.3.1 wrote them, with its voters in the file (kraft.version 0) and in the log (1).
STATIC = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
)
DYNAMIC = '{"leaderId":-1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"VV_T4Vd-Q0OOw2o2PH_irg","data_version":1}'


def read(folder: Path, text: str, *, is_ours: bool = False) -> QuorumState:
    (folder / "quorum-state").write_text(text)
    return read_quorum_state(FileStorage(), str(folder), is_ours=is_ours)


def test_both_versions_of_kafkas_file(tmp_path: Path) -> None:
    assert read(tmp_path, STATIC) == QuorumState(1, 3, frozenset({1, 2}))
    assert read(tmp_path, DYNAMIC) == QuorumState(-1, 7, frozenset())


def test_no_file(tmp_path: Path) -> None:
    assert read_quorum_state(FileStorage(), str(tmp_path), is_ours=False) == NO_QUORUM


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"leaderId":1,"leaderEpoch":"x"}', "\x00\x00"])
def test_a_damaged_file_is_as_good_as_none_once_the_folder_was_taken_over(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text, is_ours=True) == NO_QUORUM
    with pytest.raises(DamagedMetadata, match="quorum-state cannot be read"):
        read(tmp_path, text)
