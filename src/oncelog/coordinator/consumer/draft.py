"""A change of one group in the making: the records so far, and the group as it will be once they are replayed."""

from __future__ import annotations

from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.group_records import current_record
from oncelog.coordinator.consumer.member import Member
from oncelog.coordinator.records import CoordinatorRecord


class Draft:
    """Decisions read `group` and write records; the group that the log knows stays as it is."""

    def __init__(self, group: ConsumerGroup, records: list[CoordinatorRecord] | None = None) -> None:
        """`records` come first, and concern another kind of group that had the same id."""
        self.group = group
        self.records = [] if records is None else records
        self._is_copy = False

    def write(self, *records: CoordinatorRecord) -> None:
        if records and not self._is_copy:
            self.group, self._is_copy = self.group.fork(), True
        for record in records:
            self.group.replay(record)
        self.records.extend(records)

    def finish(self, member: Member) -> None:
        """The last record of a heartbeat. Nobody reads the draft after it, so the commonest change costs no copy."""
        self.records.append(current_record(self.group.group_id, member))
