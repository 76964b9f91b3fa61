"""The keys of transactions: Kafka's names, defaults and rules, and one of our own (`oncelog.transaction.version`).

Differ for two keys: `transaction.state.log.replication.factor` and `transaction.state.log.min.isr` are 1 by default,
since Kafka's 3 and 2 could never be met by the one node that there is.
"""

from __future__ import annotations

from dataclasses import replace

from oncelog.broker.config.definition import ConfigKey, ConfigType, UpdateMode, at_least, between

PARTITION_VERIFICATION = "transaction.partition.verification.enable"
TRANSACTION_VERSION = "oncelog.transaction.version"
NEWEST_VERSION = 2


def _number(name: str, default: int, documentation: str, config_type: ConfigType = ConfigType.INT) -> ConfigKey:
    return ConfigKey(name, config_type, str(default), documentation, at_least(1))


TRANSACTION_KEYS = (
    _number("transaction.max.timeout.ms", 900_000, "The longest transaction timeout that a producer may ask for."),
    _number(
        "transactional.id.expiration.ms", 604_800_000, "Forget a transactional id that was not used for this long."
    ),
    _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, "How often such ids are looked for."
    ),
    _number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How long after a failed attempt the abort of a transaction that took too long is tried again.",
    ),
    replace(
        ConfigKey(
            PARTITION_VERIFICATION,
            ConfigType.BOOLEAN,
            "true",
            "Whether a partition takes a transaction's first batch only after its coordinator has confirmed it.",
        ),
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    _number(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of __transaction_state, which is created when it is first needed.",
    ),
    _number("transaction.state.log.replication.factor", 1, "Its replicas.", ConfigType.SHORT),
    _number("transaction.state.log.min.isr", 1, "Its min.insync.replicas."),
    _number("transaction.state.log.segment.bytes", 100 << 20, "Size of its segments. Only closed ones are compacted."),
    ConfigKey(
        TRANSACTION_VERSION,
        ConfigType.INT,
        str(NEWEST_VERSION),
        "The highest transaction.version that clients are told: below 2 they use the protocol before KIP-890.",
        between(0, NEWEST_VERSION),
    ),
)
