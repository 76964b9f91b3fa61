"""What a call must find before it begins; each check raises, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore
from oncelog.client.consumer_errors import NotAssigned
from oncelog.errors import InvalidConfig
from oncelog.types import TopicPartition


def check_alive(core: ConsumerCore) -> None:
    if core.fatal is not None:
        raise core.fatal.with_traceback(None)


def check_group(config: ConsumerConfig, what: str) -> None:
    if config.group_id is None:
        raise InvalidConfig(f"{what} needs a group: set group.id")


def check_owned(core: ConsumerCore, partitions: Iterable[TopicPartition]) -> None:
    foreign = [partition for partition in partitions if partition not in core.assignment]
    if foreign:
        raise NotAssigned(foreign)
