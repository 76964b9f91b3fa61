"""`quorum-state`: what a Kafka controller wrote down about elections beside its metadata log.

Read once at the start, never written: a node alone elects no one. It says up to which epoch the metadata may have been
written, and whether this folder holds all of it or a copy of what others decided.
"""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

from oncelog.controller.records import DamagedMetadata
from oncelog.log.storage import Storage

logger = logging.getLogger(__name__)

FILE_NAME = "quorum-state"
NO_LEADER = -1
NO_EPOCH = 0


class QuorumState(NamedTuple):
    leader_id: int
    leader_epoch: int
    voters: frozenset[int]
    """Empty where the voters are in the metadata log itself (kraft.version 1)."""


NO_QUORUM = QuorumState(NO_LEADER, NO_EPOCH, frozenset())


def read_quorum_state(storage: Storage, directory: str, *, is_ours: bool) -> QuorumState:
    """What the file in the metadata log's folder says; NO_QUORUM if there is none. A damaged one says nothing either,
    if the folder is ours: Kafka wrote it before the folder was taken over. Else it might have said that this is a part
    of a larger cluster: raises DamagedMetadata."""
    path = f"{directory}/{FILE_NAME}"
    if not storage.exists(path):
        return NO_QUORUM
    try:
        found = json.loads(storage.read_all(path))
        voters = frozenset(int(voter["voterId"]) for voter in found.get("currentVoters") or ())
        quorum = QuorumState(int(found["leaderId"]), int(found["leaderEpoch"]), voters)
        if quorum.leader_id < NO_LEADER or quorum.leader_epoch < NO_EPOCH:
            raise ValueError(f"a leader {quorum.leader_id} in epoch {quorum.leader_epoch}")
        return quorum
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if not is_ours:
            raise DamagedMetadata(f"{path} cannot be read ({error!r})") from error
        logger.warning("going on without %s, which cannot be read: %r", path, error)
        return NO_QUORUM
