"""What the controller's tests share: a schema with two keys, a cluster of one, ids that count up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from uuid import UUID

from oncelog.controller.identity import Identity
from oncelog.controller.state import ConfigResource, ControllerState, Outcome, ResourceType
from oncelog.controller.topics import Cluster
from oncelog.errors import InvalidConfig

IDENTITY = Identity("the-cluster", 1, UUID(int=99))
CLUSTER = Cluster(node_id=1, directory_id=IDENTITY.directory_id, default_partitions=3, default_replication_factor=1)


class TwoKeys:
    """`cleanup.policy` is a list, `retention.ms` a number; there is nothing else."""

    def is_list(self, resource_type: ResourceType, name: str) -> bool:
        return name == "cleanup.policy"

    def default(self, resource_type: ResourceType, name: str) -> str | None:
        return {"cleanup.policy": "delete", "retention.ms": "7"}.get(name)

    def validate(
        self, resource: ConfigResource, configs: Mapping[str, str], changed: frozenset[str], planned: object = None
    ) -> None:
        for name, value in configs.items():
            if name not in ("cleanup.policy", "retention.ms"):
                raise InvalidConfig(f"Unknown topic config name: {name}")
            if name == "retention.ms" and not value.isdigit():
                raise InvalidConfig(f"{value} is no number")


SCHEMA = TwoKeys()


def counting_ids() -> Callable[[], UUID]:
    numbers = count(1)
    return lambda: UUID(int=next(numbers))


def apply(state: ControllerState, outcome: Outcome[object]) -> None:
    for record in outcome.records:
        state.replay(record)
