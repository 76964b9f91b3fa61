"""Effects that happen once: what a record does to your database is done once, however often it is delivered.

from oncelog import once

def book_order(connection, record):
    connection.execute("INSERT INTO bookings (customer, item) VALUES (?, ?)", (record.key, record.value))

with oncelog.Consumer("127.0.0.1:9092", group_id="billing", enable_auto_commit=False) as consumer:
    once.Runner(consumer, "shop.db", book_order, topics=["orders"]).run()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oncelog.client.failure_run import TooManyFailures
from oncelog.once.cleaning import clean
from oncelog.once.database import Database
from oncelog.once.database_offsets import DatabaseOffsets
from oncelog.once.dead_letters import DeadLetter
from oncelog.once.errors import (
    BadEffect,
    BadIdentity,
    DatabaseUnavailable,
    EffectEndedTransaction,
    LeaseHeld,
    LeaseLost,
    NotClaimed,
    OnceError,
    PartitionFenced,
    PartitionTakenTwice,
    PoisonRecord,
    PositionBeyondEnd,
    UnsupportedDatabase,
)
from oncelog.once.identity import header_id
from oncelog.once.message_table import MessageTable
from oncelog.once.outcome import Outcome, Tally
from oncelog.once.runner import Runner
from oncelog.once.state_guard import StateGuard
from oncelog.once.strategy import Effect, Strategy
from oncelog.once.token import Token
from oncelog.once.version import Version
from oncelog.once.worker import Worker, process

if TYPE_CHECKING:
    from oncelog.once.redis_leases import RedisLeases as RedisLeases

__all__ = [
    "BadEffect",
    "BadIdentity",
    "Database",
    "DatabaseOffsets",
    "DatabaseUnavailable",
    "DeadLetter",
    "Effect",
    "EffectEndedTransaction",
    "LeaseHeld",
    "LeaseLost",
    "MessageTable",
    "NotClaimed",
    "OnceError",
    "Outcome",
    "PartitionFenced",
    "PartitionTakenTwice",
    "PoisonRecord",
    "PositionBeyondEnd",
    "RedisLeases",
    "Runner",
    "StateGuard",
    "Strategy",
    "Tally",
    "Token",
    "TooManyFailures",
    "UnsupportedDatabase",
    "Version",
    "Worker",
    "clean",
    "header_id",
    "process",
]


def __getattr__(name: str) -> Any:
    if name == "RedisLeases":  # needs the package `redis`, which most do not have
        return import_module("oncelog.once.redis_leases").RedisLeases
    raise AttributeError(f"module 'oncelog.once' has no attribute {name!r}")
