"""Batches of a Produce request that are too much for the loop: judged in a thread before anything is appended.

Owns what a batch weighs and what a request may unfold to. A batch weighs what it can decompress to, and more where it
must be compressed anew for its topic. What fits into the loop's share is judged as ever, when it is appended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog.broker.off_loop import INLINE_BYTES
from oncelog.errors import InvalidRecord, KafkaError, MessageTooLarge, UnknownServerError
from oncelog.log.config import LogConfig
from oncelog.records import compression, frames, kernel
from oncelog.records.batch import recompress
from oncelog.records.model import CODEC_MASK, HEADER_SIZE
from oncelog.records.validation import BatchRules, ValidatedBatch, validate_client_batch
from oncelog.types import TopicPartition
from oncelog.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

PRODUCER_DECIDES, UNCOMPRESSED = "producer", "uncompressed"

MAX_UNFOLDED_BYTES: Final = 256 * 1024 * 1024
MAX_UNFOLDED_RATIO: Final = 16
"""What the batches of one request may decompress to, all together: the larger of the two, the second times what they
have compressed. A text compresses to a fifth or a tenth; what goes beyond is refused, batch by batch."""

RECOMPRESSION_WEIGHT: Final = 64
"""Compressing is so much slower than decompressing, at worst: 64 KiB of records are compressed on the loop."""

LZ4_EXPECTED_RATIO: Final = 32
"""Of lz4 only the largest size of a block is known, which for small batches is far too much. It cannot unfold to more
than eight times this, so the loop would still be on time."""

_CODEC_AT: Final = 22  # the lower byte of a batch's attributes


HeavyBatch = tuple[str, ProducePartition]
"""With the name of its topic."""


Judged = tuple[memoryview, ValidatedBatch]
"""A batch as it is to be stored."""


def judge(batch: memoryview, rules: BatchRules, config: LogConfig, partition: TopicPartition) -> Judged:
    """Raises what the client is to be answered. Reads nothing but its arguments: any thread may call it."""
    validated = validate_client_batch(batch, rules, partition)
    if config.compression_type == PRODUCER_DECIDES:
        return batch, validated
    return _as_topic_compresses(config, batch, validated, rules)


def heavy_batches(broker: BrokerState, produce: ProduceRequest) -> list[HeavyBatch]:
    """The partitions of the request whose batches are not for the loop."""
    heavy: list[HeavyBatch] = []
    inline_left = INLINE_BYTES
    for topic in produce.topics:
        for partition in topic.partitions:
            records = partition.records
            if records is None or len(records) < HEADER_SIZE:
                continue
            weight = _unfolded(records) if records[_CODEC_AT] & CODEC_MASK else 0
            is_large = weight + len(records) > INLINE_BYTES // RECOMPRESSION_WEIGHT
            if is_large and _is_recompressed(broker, _name_of(broker, topic), partition):
                weight = (weight or len(records)) * RECOMPRESSION_WEIGHT
            if weight > inline_left:
                heavy.append((_name_of(broker, topic), partition))
            else:
                inline_left -= weight
    return heavy


def _name_of(broker: BrokerState, topic: ProduceTopic) -> str:
    return topic.name if topic.topic_id is None else broker.topic_name(topic.topic_id) or ""


def _unfolded(records: memoryview) -> int:
    codec = records[_CODEC_AT] & CODEC_MASK
    section = records[HEADER_SIZE:]
    try:
        bound = frames.readable_size_bound(codec, section)
    except KafkaError:
        return 0  # it is refused before it is decompressed
    return min(bound, LZ4_EXPECTED_RATIO * len(section)) if codec == compression.LZ4 else bound


def _is_recompressed(broker: BrokerState, name: str, partition: ProducePartition) -> bool:
    try:
        wanted = broker.partition(name, partition.index).config.compression_type
    except KafkaError:
        return False
    records = partition.records
    assert records is not None
    return wanted != PRODUCER_DECIDES and _codec_of(wanted) != records[_CODEC_AT] & CODEC_MASK


class Judging:
    """The judgement of a request's heavy batches, one after the other, off the loop."""

    def __init__(
        self,
        broker: BrokerState,
        heavy: list[HeavyBatch],
        wall_ms: int,
        done: Callable[[dict[int, Judged | KafkaError]], None],
    ) -> None:
        self._broker = broker
        self._heavy: Iterator[HeavyBatch] = iter(heavy)
        self._wall_ms = wall_ms
        self._done = done
        self._judged: dict[int, Judged | KafkaError] = {}
        self._held_bytes = sum(len(partition.records or b"") for _, partition in heavy)
        self._unfolded_left = max(MAX_UNFOLDED_BYTES, MAX_UNFOLDED_RATIO * self._held_bytes)
        self._is_abandoned = False

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._is_abandoned = True

    def start(self) -> None:
        """Raises RequestTimedOut if too much waits already; then `done` is not called."""
        self._broker.off_loop.enter(self._held_bytes)
        self._go_on()

    def _go_on(self) -> None:
        for name, partition in self._heavy:
            if self._is_abandoned:
                break
            try:
                self._judge(name, partition)
            except KafkaError as error:
                self._judged[id(partition)] = error
            except Exception:
                logger.exception("bug: a batch for %s could not be judged", name)
                self._judged[id(partition)] = UnknownServerError("the broker failed; its log says why")
            else:
                return
        self._broker.off_loop.leave(self._held_bytes)
        if not self._is_abandoned:
            self._done(self._judged)

    def _judge(self, name: str, partition: ProducePartition) -> None:
        log = self._broker.partition(name, partition.index)
        records, config = partition.records, log.config
        assert records is not None, "what is not there weighs nothing"
        rules = self._broker.batch_rules(config, self._wall_ms)
        allowed = min(rules.max_decompressed_bytes, self._unfolded_left)
        if allowed <= 0:
            raise InvalidRecord("the batches of one request decompress to more than it may; send smaller requests")
        limited = rules._replace(max_decompressed_bytes=allowed)

        def ended(judged: Judged | None, error: KafkaError | None) -> None:
            if error is not None:
                self._judged[id(partition)] = error
                self._unfolded_left -= min(_unfolded(records), allowed)
            elif judged is not None:
                self._judged[id(partition)] = judged
                self._unfolded_left -= judged[1].unfolded_bytes
            self._go_on()

        self._broker.off_loop.run(lambda: judge(records, limited, config, log.topic_partition), ended)


def _as_topic_compresses(config: LogConfig, batch: memoryview, validated: ValidatedBatch, rules: BatchRules) -> Judged:
    """`compression.type` other than `producer` is the topic's word: the batch is stored as it says."""
    wanted = config.compression_type
    codec = _codec_of(wanted)
    if codec == validated.header.codec:
        return batch, validated
    rebuilt = memoryview(
        recompress(
            batch,
            validated.header,
            codec,
            max_decompressed_bytes=rules.max_decompressed_bytes,
            level=_compression_level(config, codec),
        )
    )
    if len(rebuilt) > rules.max_message_bytes:
        raise MessageTooLarge(
            f"with the topic's compression.type, {wanted}, the batch has {len(rebuilt)} bytes; "
            f"its max.message.bytes is {rules.max_message_bytes}"
        )
    return rebuilt, validated._replace(header=kernel.parse_header(rebuilt))


def _codec_of(wanted: str) -> int:
    return compression.NONE if wanted == UNCOMPRESSED else compression.codec_named(wanted)


def _compression_level(config: LogConfig, codec: int) -> int | None:
    settings = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }
    return compression.level_set(codec, settings.get(codec))
