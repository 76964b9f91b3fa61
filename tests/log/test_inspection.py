"""What the doctor is told of a damaged partition, that looking changes nothing, and what accepting a loss leaves."""

from __future__ import annotations

import pytest

from oncelog.log.inspection import Finding, Severity, accept_loss, inspect_data_folder
from tests.log.driver import append, make_batch
from tests.log.test_damage import DAMAGED, FOLDER, OTHER, Template, make_template, open_manager
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
