"""`quorum-state`: what a Kafka controller wrote down about elections beside its metadata log.

Read once at the start, never written: a node alone elects no one. It says up to which epoch the metadata may have been
written, and whether this folder holds all of it or a copy of what others decided.
"""

from __future__ import annotations

import json
import logging

from oncelog.controller.records import DamagedMetadata
from oncelog.log.storage import Storage
from oncelog.named_tuple import NamedTuple
from oncelog.printable import excerpt

logger = logging.getLogger(__name__)

FILE_NAME = "quorum-state"
NO_LEADER = -1
NO_EPOCH = 0
MAX_EPOCH = 2**30
"""One election in a second would take 34 years to get there."""


class QuorumState(NamedTuple):
    leader_id: int
    leader_epoch: int
    voters: frozenset[int]
    """Empty where the voters are in the metadata log itself (kraft.version 1)."""

    def epoch_within(self, last_epoch: int) -> int:
        """The last epoch of an election, unless the metadata log, which ends in `last_epoch`, has nothing of it."""
        return self.leader_epoch if self.leader_epoch <= last_epoch else NO_EPOCH


NO_QUORUM = QuorumState(NO_LEADER, NO_EPOCH, frozenset())


def read_quorum_state(storage: Storage, directory: str, *, is_ours: bool) -> QuorumState:
    """What the file in the metadata log's folder says; NO_QUORUM if there is none. A damaged one says nothing either,
    if the folder is ours: Kafka wrote it before the folder was taken over. Else it might have said that this is a part
    of a larger cluster: raises DamagedMetadata."""
    path = f"{directory}/{FILE_NAME}"
    if not storage.exists(path):
        return NO_QUORUM
    data = storage.read_all(path)
    try:
        found = json.loads(data)
        voters = frozenset(int(voter["voterId"]) for voter in found.get("currentVoters") or ())
        quorum = QuorumState(int(found["leaderId"]), int(found["leaderEpoch"]), voters)
        if quorum.leader_id < NO_LEADER or not NO_EPOCH <= quorum.leader_epoch <= MAX_EPOCH:
            raise ValueError("no such leader")
        return quorum
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"it holds {excerpt(data)}, which is no leader and its epoch"
        if not is_ours:
            raise DamagedMetadata(f"{path} cannot be read: {problem}") from error
        logger.warning("going on without %s, which cannot be read: %s", path, problem)
        return NO_QUORUM
