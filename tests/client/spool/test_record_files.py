"""The files of records: the journal hears of every file that grows, whatever it grows by."""

from __future__ import annotations

from oncelog.client.spool.entry import JournalNote
from oncelog.client.spool.record_files import RecordFile, RecordFiles
from tests.support.faulty_storage import FaultyStorage

NOTE = JournalNote(1, 10)


def test_a_file_that_grows_by_notes_is_told_as_well() -> None:
    storage = FaultyStorage()
    storage.make_directory("/spool")
    files = RecordFiles(storage, "/spool", max_bytes=1 << 30, is_durable=False)
    told: list[int] = []

    def grows(record_file: RecordFile) -> None:
        told.append(record_file.reserved)

    files.before_growing = grows
    reserved: list[int] = []
    while len(reserved) < 3:
        files.append_note(NOTE)
        assert files.active is not None
        if files.active.reserved not in reserved:
            reserved.append(files.active.reserved)
    assert told == reserved
