"""What the doctor is told of a damaged partition, that looking changes nothing, and what accepting a loss leaves."""

from __future__ import annotations

import pytest

from oncelog.log.checkpoints import CLEAN_SHUTDOWN_FILE
from oncelog.log.inspection import Finding, Severity, accept_loss, inspect_data_folder
from oncelog.log.survey import OffsetRange
from oncelog.records import kernel
from tests.log.damaging import DAMAGED, FOLDER, OTHER, Template, batches, make_template, open_manager
from tests.log.driver import START_MS, append, make_batch
from tests.support.faulty_storage import FaultyStorage

PARTITION_FOLDER = f"{FOLDER}/{DAMAGED}"


@pytest.fixture(scope="module")
def template() -> Template:
    return make_template(is_killed=False)


def inspect(disk: FaultyStorage, *, verify_batches: bool = False) -> list[Finding]:
    before = {path: bytes(disk.content(path)) for path in disk.paths("")}
    found = inspect_data_folder(disk, FOLDER, [DAMAGED, OTHER], verify_batches=verify_batches)
    assert {path: bytes(disk.content(path)) for path in disk.paths("")} == before, "looking changes nothing"
    return found


def test_nothing_is_found_where_nothing_is_wrong(template: Template) -> None:
    assert inspect(template.disk.copy(), verify_batches=True) == []


def test_what_the_next_start_puts_right(template: Template) -> None:
    disk = template.disk.copy()
    lost = disk.paths(".txnindex")[0]
    disk.remove(lost)
    (finding,) = inspect(disk)
    assert (finding.path, finding.severity) == (lost, Severity.REPAIRED_AT_START)


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_lost_segment_is_found_and_its_loss_accepted(template: Template, which: int) -> None:
    disk = template.disk.copy()
    lost = disk.paths(".log")[: template.segments][which]
    disk.remove(lost)
    (finding,) = inspect(disk)
    assert (finding.path, finding.severity, finding.can_repair) == (PARTITION_FOLDER, Severity.LOSS, True)
    assert lost.rpartition("/")[2] in finding.problem
    assert DAMAGED in open_manager(disk).report.failed
    assert accept_loss(disk, FOLDER, DAMAGED) != []
    assert [each for each in inspect(disk) if each.severity is Severity.LOSS] == []
    log = open_manager(disk).logs[DAMAGED]
    assert log.log_end_offset == template.answers[DAMAGED]["end"], "no offset is given out again"
    assert append(log, make_batch([b"next"]), leader_epoch=2).base_offset == template.answers[DAMAGED]["end"]


def test_a_lost_folder_is_found_and_its_loss_accepted(template: Template) -> None:
    disk = template.disk.copy()
    disk.remove_directory(PARTITION_FOLDER)
    (finding,) = inspect(disk)
    assert (finding.path, finding.severity) == (PARTITION_FOLDER, Severity.LOSS)
    accept_loss(disk, FOLDER, DAMAGED)
    log = open_manager(disk).logs[DAMAGED]
    assert (log.log_start_offset, log.log_end_offset) == (template.answers[DAMAGED]["end"],) * 2


@pytest.mark.parametrize("position", [0, 8, 20, 70])
def test_a_damaged_batch_is_found_by_reading_all_and_cut_off(template: Template, position: int) -> None:
    """Its offset is not covered by its checksum, but out of order."""
    disk = template.disk.copy()
    path = disk.paths(".log")[1]
    disk.content(path)[position + 150] ^= 0x80
    content = bytes(disk.content(path))
    findings = inspect(disk, verify_batches=True)
    assert path in {finding.path for finding in findings}
    assert {finding.severity for finding in findings} == {Severity.LOSS}
    accept_loss(disk, FOLDER, DAMAGED)
    assert disk.content(f"{path}.damaged") == content
    assert [each for each in inspect(disk, verify_batches=True) if each.severity is Severity.LOSS] == []
    assert open_manager(disk).logs[DAMAGED].log_end_offset == template.answers[DAMAGED]["end"]


def headers_of(disk: FaultyStorage, path: str) -> list[tuple[int, int, int]]:
    """Each batch of a segment: its first and its last offset, and where it begins."""
    found, position = [], 0
    data = bytes(disk.content(path))
    for header in kernel.scan(data, 0, len(data), True)[0]:
        found.append((header.base_offset, header.last_offset, position))
        position += header.size_bytes
    return found


@pytest.mark.parametrize("byte", [8, 20, 70], ids=["size", "checksum", "records"])
@pytest.mark.parametrize("which", [1, -1], ids=["sealed", "growing"])
def test_only_the_damaged_batch_is_cut_out(template: Template, which: int, byte: int) -> None:
    """Those behind it stay, also over a kill and a further start: the gap is not a torn write."""
    disk = template.disk.copy()
    path = disk.paths(".log")[: template.segments][which]
    first, last, position = headers_of(disk, path)[1]
    disk.content(path)[position + byte] ^= 0x01
    (finding,) = inspect(disk, verify_batches=True)
    assert (finding.path, finding.lost) == (path, (OffsetRange(first, last),))
    assert f"offset {first} (1 record) cannot be read" in finding.problem
    done = accept_loss(disk, FOLDER, DAMAGED)
    assert done[0] == f"lost: offset {first} (1 record)"
    kept = [each for each in template.answers[DAMAGED]["records"] if each[0] != first]
    assert [each for each in inspect(disk, verify_batches=True) if each.severity is Severity.LOSS] == []
    for _ in range(2):  # the first is not stopped: it is killed
        manager = open_manager(disk)
        disk.remove(f"{FOLDER}/{CLEAN_SHUTDOWN_FILE}")
        log = manager.logs[DAMAGED]
        assert list(batches(log)) == kept
        assert log.log_end_offset == template.answers[DAMAGED]["end"]
    append(log, make_batch([b"next"]), leader_epoch=2)
    manager.stop(START_MS)
    assert list(batches(open_manager(disk).logs[DAMAGED]))[:-1] == kept


def test_the_loss_of_a_folder_of_which_nothing_is_known(template: Template) -> None:
    disk = template.disk.copy()
    disk.remove_directory(PARTITION_FOLDER)
    disk.remove(f"{FOLDER}/recovery-point-offset-checkpoint")
    disk.remove(f"{FOLDER}/log-start-offset-checkpoint")
    assert accept_loss(disk, FOLDER, DAMAGED)[0] == "goes on at offset 0: nothing tells how far it went"


def test_two_repairs_keep_two_copies(template: Template) -> None:
    disk = template.disk.copy()
    path = disk.paths(".log")[1]
    kept = []
    for number in (1, 2):
        _, _, position = headers_of(disk, path)[number]
        disk.content(path)[position + 70] ^= 0x01
        kept.append(bytes(disk.content(path)))
        accept_loss(disk, FOLDER, DAMAGED)
    assert [bytes(disk.content(path + suffix)) for suffix in (".damaged", ".damaged.2")] == kept


def test_a_segment_that_is_gone_is_told_by_its_offsets(template: Template) -> None:
    disk = template.disk.copy()
    _, gone, following = disk.paths(".log")[:3]
    begin, end = (int(path.rpartition("/")[2][:20]) for path in (gone, following))
    disk.remove(gone)
    (finding,) = inspect(disk)
    assert finding.lost == (OffsetRange(begin, end - 1),)
    assert f"offsets {begin} to {end - 1}" in finding.problem
    assert f"lost: {finding.lost[0]}" in accept_loss(disk, FOLDER, DAMAGED)
