"""All that the options of a source say, read and checked once, before anything is asked of a broker.

`SourceSettings` is a value: it travels to the executors. Options that mean something only to Spark's Java consumer are
accepted and named in `WITHOUT_MEANING`, so that a query moves over by changing the name of its format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from oncelog.client.config import ClientConfig
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.errors import InvalidConfig
from oncelog.spark.options import BadOption, Options
from oncelog.spark.source import bounds, selection
from oncelog.spark.source.bounds import Bound
from oncelog.spark.source.limits import Patience
from oncelog.spark.source.ranges import Splitting
from oncelog.spark.source.selection import Selection
from oncelog.types import IsolationLevel

WITHOUT_MEANING = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.cache.timeout",
    "kafkaConsumer.cache.evictorThreadRunInterval",
    "kafkaConsumer.cache.capacity",
    "kafkaConsumer.cache.jmx.enable",
)
"""Reading joins no group, and how often it asks again is the client's business."""

_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAMING = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN = (
    *selection.NAMES,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_ENDING,
    *_STREAMING,
    "minPartitions",
    "maxRecordsPerPartition",
    "splitSkewedPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    *WITHOUT_MEANING,
)

_OURS = {
    "auto.offset.reset": "say where to begin with startingOffsets",
    "key.deserializer": "keys are bytes; convert the column",
    "value.deserializer": "values are bytes; convert the column",
    "enable.auto.commit": "the position is in the query's checkpoint; leave this out",
    "interceptor.classes": "leave this out",
    "interceptors": "leave this out",
}
"""Settings of a consumer that the source needs for itself, and what to do instead."""

_DEFAULTS = {
    "client.id": "oncelog-spark-source",
    "isolation.level": "read_committed",
    # A topic that was deleted must not come back because somebody wants to read it.
    "allow.auto.create.topics": "false",
    # A task asks only for what is there: a broker that waits for more would hold up the next task.
    "fetch.max.wait.ms": "5",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
}

DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1000
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class SourceSettings:
    client: Mapping[str, str]
    """The consumer's settings, by Kafka's keys."""
    selection: Selection
    start: Bound
    end: Bound
    """Where a batch query ends; a stream has no end."""
    splitting: Splitting
    max_offsets: int | None
    patience: Patience | None
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    """How long a task waits for records that must be there before it fails."""

    @property
    def isolation_level(self) -> IsolationLevel:
        return ConsumerConfig.of(self.client).isolation_level

    @property
    def admin(self) -> dict[str, str]:
        """Those of the client's settings that matter for asking about topics and offsets."""
        known = {field.name for field in fields(ClientConfig)}
        return {key: value for key, value in self.client.items() if key.replace(".", "_") in known}


def includes_headers(options: Options) -> bool:
    return options.flag("includeHeaders", False)


def stream_settings(options: Options) -> SourceSettings:
    """Raises BadOption and InvalidConfig."""
    for name in _ENDING:
        if name in options:
            raise BadOption(f"a streaming query has no end: leave out the option {name!r} of {options.what}")
    return _settings(options, bounds.starting(options, bounds.LATEST, refused=None))


def batch_settings(options: Options) -> SourceSettings:
    """Raises BadOption and InvalidConfig."""
    for name in _STREAMING:
        if name in options:
            raise BadOption(f"a batch query reads all at once: leave out the option {name!r} of {options.what}")
    return _settings(options, bounds.starting(options, bounds.EARLIEST, refused=bounds.LATEST))


def _settings(options: Options, start: Bound) -> SourceSettings:
    options.refuse_unknown(KNOWN)
    max_offsets = options.integer("maxOffsetsPerTrigger", minimum=1)
    patience = _patience(options)
    if patience is not None and max_offsets is not None and patience.min_offsets > max_offsets:
        raise BadOption(
            f"minOffsetsPerTrigger ({patience.min_offsets}) is larger than maxOffsetsPerTrigger ({max_offsets})"
        )
    return SourceSettings(
        client=_client(options),
        selection=selection.selection_of(options),
        start=start,
        end=bounds.ending(options),
        splitting=Splitting(
            options.integer("minPartitions", minimum=1) or 1,
            options.integer("maxRecordsPerPartition", minimum=1),
            options.flag("splitSkewedPartitions", False),
        ),
        max_offsets=max_offsets,
        patience=patience,
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        include_headers=includes_headers(options),
        poll_timeout_ms=options.integer("kafkaConsumer.pollTimeoutMs", minimum=1) or DEFAULT_POLL_TIMEOUT_MS,
    )


def _client(options: Options) -> dict[str, str]:
    given = options.client_settings()
    for key, remedy in _OURS.items():
        if key in given:
            raise BadOption(f"{options.what} does not take the option 'kafka.{key}': {remedy}")
    given.pop("group.id", None)  # nobody joins it, and nothing is committed to it
    settings = {**_DEFAULTS, **given}
    try:
        ConsumerConfig.of(settings)
    except InvalidConfig as error:
        raise BadOption(f"{options.what}, options kafka.*: {error.message}") from None
    return settings


def _patience(options: Options) -> Patience | None:
    min_offsets = options.integer("minOffsetsPerTrigger", minimum=1)
    delay_ms = DEFAULT_TRIGGER_DELAY_MS
    text = options.optional("maxTriggerDelay")
    if text is not None:
        duration = _DURATION.fullmatch(text.lower())
        if duration is None:
            raise options.wrong("maxTriggerDelay", "a duration such as 500ms, 30s, 15m or 1h")
        delay_ms = int(duration[1]) * _UNIT_MS[duration[2]]
        if min_offsets is None:
            raise BadOption("maxTriggerDelay bounds the wait for minOffsetsPerTrigger: give both, or neither")
    return None if min_offsets is None else Patience(min_offsets, delay_ms)
