"""Groups whose members, and whose broker, are killed (SIGKILL) or paused (SIGSTOP) under load. All are real processes.

Nothing is lost, offsets never go back, the group goes on; what comes again is what was not committed. A member that was
paused for longer than its session wakes up as a zombie, and cannot commit what it still has in hand.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.broker.process import Broker
from oncelog.types import TopicPartition
from tests.faults.group_books import Chronicle
from tests.faults.group_lives import Lives
from tests.faults.group_scene import (
    GROUP,
    PARTITION_NAMES,
    PROTOCOLS,
    TOPIC,
    WAIT_S,
    Load,
    await_handed,
    await_progress,
    committed,
    offsets_did_not_go_back,
    short_sessions,
)
from tests.support.patience import eventually
from tests.support.sizes import IS_SOAK

BROKER_KILLS = 4 if IS_SOAK else 2
MEMBER_KILLS = 3 if IS_SOAK else 2


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Broker]:
    with short_sessions(tmp_path) as broker:
        yield broker


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_broker_that_is_killed_under_its_group(
    victim: Broker, tmp_path: Path, rng: random.Random, protocol: str
) -> None:
    servers = victim.bootstrap_servers
    with Lives(tmp_path, servers, TOPIC, group=GROUP, settings=PROTOCOLS[protocol]) as lives, Load(servers) as load:
        chronicle = Chronicle(lives.journal)
        members = [lives.start("reader") for _ in range(3)]
        load.start()
        await_progress(chronicle, 10)
        before = committed(servers)
        for _ in range(BROKER_KILLS):
            time.sleep(rng.uniform(0, 0.3))
            victim.kill()
            victim.start()
            after = committed(servers)
            offsets_did_not_go_back(before, after)
            before = after
            await_progress(chronicle)
        total = load.end()
        ends = dict.fromkeys(PARTITION_NAMES, total)
        await_handed(chronicle, ends)
        # A member whose session ends while it leaves may not commit: on a busy machine, three seconds are not long.
        eventually(lambda: committed(servers) == ends, "all is committed", WAIT_S)
        for member in members:
            lives.signal(member, signal.SIGTERM)
        eventually(lambda: len(chronicle.said("left")) == 3, "all left", WAIT_S)
        assert committed(servers) == ends
        assert all(chronicle.books.handed_up_to[one] == total for one in PARTITION_NAMES)


def last_said(chronicle: Chronicle, what: str, member: str) -> dict[TopicPartition, int]:
    """How far the member had come when it last said this."""
    said = chronicle.said(what, member)
    positions = said[-1]["positions"] if said else []
    return dict.fromkeys(PARTITION_NAMES, 0) | {TopicPartition(TOPIC, index): offset for index, offset in positions}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_are_killed(victim: Broker, tmp_path: Path, rng: random.Random, protocol: str) -> None:
    """Who comes after them begins where they committed last: what is between comes again, and nothing else."""
    servers = victim.bootstrap_servers
    with Lives(tmp_path, servers, TOPIC, group=GROUP, settings=PROTOCOLS[protocol]) as lives, Load(servers) as load:
        chronicle = Chronicle(lives.journal)
        load.start()
        member = lives.start("reader")
        for _ in range(MEMBER_KILLS):
            await_progress(chronicle, 30)
            time.sleep(rng.uniform(0, 0.05))
            lives.kill(member)
            chronicle.update()
            up_to, repeated = dict(chronicle.books.handed_up_to), chronicle.books.repeated
            heir = lives.start("reader")
            await_handed(chronicle, {one: end + 1 for one, end in up_to.items()})
            begun = {one: chronicle.books.begun[heir, one] for one in PARTITION_NAMES}
            # It may have been killed before it heard the answer.
            points = [last_said(chronicle, what, member) for what in ("committed", "committing")]
            assert all(begun[one] in (points[0][one], points[1][one]) for one in PARTITION_NAMES), (begun, points)
            assert chronicle.books.repeated - repeated == sum(up_to[one] - begun[one] for one in PARTITION_NAMES)
            member = heir
        total = load.end()
        await_handed(chronicle, dict.fromkeys(PARTITION_NAMES, total))


@pytest.mark.parametrize("dozes_s", [0, 1], ids=["at once", "when it knows"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_zombie_commits_nothing(victim: Broker, tmp_path: Path, protocol: str, dozes_s: float) -> None:
    """Neither at once, nor when its consumer has heard meanwhile that it is out: its user has not, and must."""
    servers = victim.bootstrap_servers
    with Lives(tmp_path, servers, TOPIC, group=GROUP, settings=PROTOCOLS[protocol]) as lives, Load(servers) as load:
        chronicle = Chronicle(lives.journal)
        load.send(50)
        zombie = lives.start("reader", stop_at=60, dozes_s=dozes_s)
        eventually(lambda: bool(chronicle.said("stopping", zombie)), "it stops", WAIT_S)
        heir = lives.start("reader")
        await_handed(chronicle, dict.fromkeys(PARTITION_NAMES, 50))
        eventually(lambda: min(committed(servers).values()) > 0, "the heir commits", WAIT_S)
        before = committed(servers)
        lives.signal(zombie, signal.SIGCONT)
        eventually(lambda: bool(chronicle.said("refused", zombie)), "its offset commit is refused", WAIT_S)
        assert chronicle.said("refused", zombie)[0]["error"] == "CommitFailed"
        assert not chronicle.said("committed", zombie)
        offsets_did_not_go_back(before, committed(servers))
        load.send(50)
        total = load.end()
        await_handed(chronicle, dict.fromkeys(PARTITION_NAMES, total))
        eventually(lambda: bool(chronicle.said("assigned", zombie)[1:]), f"it is back beside {heir}", WAIT_S)
