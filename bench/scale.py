"""How much work a run does: the full one that counts, and a quick one that only shows that the harness works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    rounds: int
    long_rounds: int
    start_rounds: int
    settle_s: float
    """How long a broker is left alone before its memory is read."""
    memory_load_records: int
    small_records: int
    large_records: int
    synchronous_sends: int
    recovery_rounds: int
    recovery_records: int
    partitions: int
    connections: int
    attack_rounds: int
    async_records: int
    backlog_records: int
    """More than buffer.memory holds."""
    effects: int
    commits: int
    rebalances: int
    transactions: int
    open_transactions: int
    transactional_ids: int
    spark_rounds: int
    spark_rows: int
    spark_waits: int
    """Records that go through a running query one after the other."""
    spark_booked_rows: int
    spark_growth: tuple[int, int]
    """Rows of a small batch, and of a large one."""
    growth: tuple[int, int] = (100, 10_000)
    """Partitions of a small broker, and of a large one."""
    growing_partitions: int = 5_000
    """That are created, or read, at once."""
    tail_records: int = 100


FULL = Scale(
    rounds=5,
    long_rounds=3,
    start_rounds=7,
    settle_s=5.0,
    memory_load_records=1_000_000,
    small_records=1_000_000,
    large_records=1_000_000,
    synchronous_sends=5_000,
    recovery_rounds=3,
    recovery_records=2_000_000,
    partitions=1_000,
    connections=1_000,
    attack_rounds=3,
    async_records=500_000,
    backlog_records=1_000_000,
    effects=100_000,
    commits=5_000,
    rebalances=5,
    transactions=1_000,
    open_transactions=1_000,
    transactional_ids=100_000,
    spark_rounds=2,
    spark_rows=6_000_000,
    spark_waits=40,
    spark_booked_rows=1_000_000,
    spark_growth=(1_000_000, 20_000_000),
)

AGAINST = Scale(
    rounds=1,
    long_rounds=1,
    start_rounds=1,
    settle_s=1.0,
    memory_load_records=200_000,
    small_records=200_000,
    large_records=100_000,
    synchronous_sends=1_500,
    recovery_rounds=1,
    recovery_records=200_000,
    partitions=300,
    connections=300,
    attack_rounds=1,
    async_records=100_000,
    backlog_records=1_000_000,
    effects=20_000,
    commits=1_500,
    rebalances=2,
    transactions=300,
    open_transactions=1_000,
    transactional_ids=20_000,
    spark_rounds=1,
    spark_rows=1_000_000,
    spark_waits=10,
    spark_booked_rows=100_000,
    spark_growth=(100_000, 1_000_000),
)
"""Short turns, many of them: what is compared is one checkout with another, and all rows are to take half an hour."""

QUICK = Scale(
    rounds=1,
    long_rounds=1,
    start_rounds=1,
    settle_s=0.5,
    memory_load_records=5_000,
    small_records=10_000,
    large_records=5_000,
    synchronous_sends=200,
    recovery_rounds=1,
    recovery_records=5_000,
    partitions=20,
    connections=20,
    attack_rounds=1,
    async_records=5_000,
    backlog_records=1_000_000,
    effects=2_000,
    commits=200,
    rebalances=1,
    transactions=50,
    open_transactions=100,
    transactional_ids=1_000,
    spark_rounds=1,
    spark_rows=20_000,
    spark_waits=5,
    spark_booked_rows=5_000,
    spark_growth=(5_000, 50_000),
    growth=(5, 50),
    growing_partitions=100,
    tail_records=10,
)
