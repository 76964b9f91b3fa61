"""What a turn does, row by row. The names are those of `bench.rows`, the clients those of its modules.

Rows of brokers: each side runs its own broker, the client is the same. Where the client is the limit, the processor
time of the broker tells more than the rate. Rows of clients: each side runs its own client in a process of its own, on
one broker of the present checkout. Not here are rows that compare with a peer by nature, and Spark's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import clients, consumers, processors, producers, transactors
from bench.against.pairs import Measure
from bench.against.turns import SIDES, Side, Trial, Turn
from bench.figures import OURS, percentile
from bench.peers import cpu_s, fresh, resident_mb, running
from bench.rows import crowd, effects
from bench.scale import Scale
from tests.hostile.attacks import ATTACKS, prepare
from tests.hostile.victim import victim
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

Brokers = Mapping[Side, BrokerProcess]
SMALL, LARGE = b"v" * 100, b"v" * 1_000
PARTITIONS = 4
TOPIC = "topic"
LEAST_KB = 0.1
"""What costs less than can be seen."""


@dataclass(frozen=True)
class Ground:
    """Where both sides are, and how much they are to do."""

    sources: Mapping[Side, Path]
    scale: Scale


def lower(key: str, what: str, unit: str) -> Measure:
    return Measure(key, what, unit, "lower")


def higher(key: str, what: str, unit: str) -> Measure:
    return Measure(key, what, unit, "higher")


# --- brokers ----------------------------------------------------------------------------------------------------------


def start(ground: Ground) -> Trial:
    @contextmanager
    def stage() -> Iterator[Turn]:
        with ExitStack() as stack:
            brokers = {side: stack.enter_context(fresh(OURS, ground.sources[side])) for side in SIDES}
            for broker in brokers.values():  # makes its folder, and fills the page cache with its code
                broker.start()
                broker.stop()

            def turn(side: Side) -> dict[str, float]:
                begun = time.perf_counter()
                brokers[side].start()
                ready_ms = (time.perf_counter() - begun) * 1_000
                used_ms = cpu_s(brokers[side]) * 1_000
                brokers[side].stop()
                return {"ready_ms": ready_ms, "cpu_ms": used_ms}

            yield turn

    measures = [
        lower("ready_ms", "start to ready", "ms"),
        lower("cpu_ms", "start to ready, the broker's processor time", "ms"),
    ]
    return Trial(measures, stage, turns=2, is_set_up_anew=False)


def memory(ground: Ground) -> Trial:
    count = ground.scale.memory_load_records

    def turn(side: Side) -> dict[str, float]:
        with running(OURS, ground.sources[side]) as broker:
            time.sleep(ground.scale.settle_s)
            idle = resident_mb(broker)
            clients.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            clients.write_evenly(broker.bootstrap, TOPIC, PARTITIONS, count, LARGE)
            clients.consume_small(broker.bootstrap, TOPIC, PARTITIONS, count, **AWAKE)
            time.sleep(ground.scale.settle_s)
            return {"idle": idle, "loaded": resident_mb(broker)}

    what = f"memory after {count / 1_000:,.0f} MB written and read"
    return Trial([lower("idle", "memory idle", "MB"), lower("loaded", what, "MB")], partial(_nothing, turn))


def produce_small(ground: Ground) -> Trial:
    count = ground.scale.small_records

    def prepared(broker: BrokerProcess) -> None:
        clients.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        clients.produce_small(broker.bootstrap, TOPIC, count // 5, SMALL)

    def act(broker: BrokerProcess) -> float:
        return clients.produce_small(broker.bootstrap, TOPIC, count, SMALL)

    return _of_brokers(ground, "produce 100 B, confluent-kafka", count, prepared, act, turns=2)


def produce_large(ground: Ground) -> Trial:
    count = ground.scale.large_records

    def prepared(broker: BrokerProcess) -> None:
        clients.create_topic(broker.bootstrap, TOPIC, PARTITIONS)

    def act(broker: BrokerProcess) -> float:
        return clients.producer_performance(broker.bootstrap, TOPIC, count, len(LARGE))

    return _of_brokers(ground, "produce 1,000 B, ProducerPerformance", count, prepared, act)


def consume(ground: Ground) -> Trial:
    count = ground.scale.small_records

    def prepared(broker: BrokerProcess) -> None:
        clients.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        clients.write_evenly(broker.bootstrap, TOPIC, PARTITIONS, count, LARGE)

    def act(broker: BrokerProcess) -> float:
        return clients.consume_small(broker.bootstrap, TOPIC, PARTITIONS, count, **AWAKE)

    return _of_brokers(ground, "consume 1,000 B, confluent-kafka", count, prepared, act, turns=2)


AWAKE = {"fetch.queue.backoff.ms": 100}
"""As in the row `consume`: otherwise confluent-kafka pauses most of the time."""


def latency(ground: Ground) -> Trial:
    def send(bootstrap: str) -> list[float]:
        durations_ms = clients.synchronous_sends_ms(bootstrap, TOPIC, ground.scale.synchronous_sends, SMALL)
        return durations_ms[len(durations_ms) // 20 :]  # the first send of a new connection also fetches metadata

    @contextmanager
    def stage() -> Iterator[Turn]:
        with _both(ground) as brokers:
            for broker in brokers.values():
                clients.create_topic(broker.bootstrap, TOPIC, 1)
                send(broker.bootstrap)

            def turn(side: Side) -> dict[str, float]:
                steady_ms = send(brokers[side].bootstrap)
                return {"p50": percentile(steady_ms, 0.5), "p99": percentile(steady_ms, 0.99)}

            yield turn

    measures = [lower("p50", "one synchronous send, p50", "ms"), lower("p99", "one synchronous send, p99", "ms")]
    return Trial(measures, stage, turns=2)


def recovery(ground: Ground) -> Trial:
    partitions, count = 20, ground.scale.recovery_records

    def turn(side: Side) -> dict[str, float]:
        with running(OURS, ground.sources[side]) as broker:
            clients.create_topic(broker.bootstrap, TOPIC, partitions)
            clients.write_evenly(broker.bootstrap, TOPIC, partitions, count, LARGE)
            broker.kill()
            begun = time.perf_counter()
            broker.start()
            stored = clients.await_partitions(broker.bootstrap, TOPIC, partitions)
            elapsed_ms = (time.perf_counter() - begun) * 1_000
            assert stored == count, f"{stored} of {count} records are left"
            return {"ms": elapsed_ms}

    what = f"ready after kill -9 with {count / 1_000:,.0f} MB in {partitions} partitions"
    return Trial([lower("ms", what, "ms")], partial(_nothing, turn))


def crowded(ground: Ground) -> Trial:
    partitions, connections, settle_s = ground.scale.partitions, ground.scale.connections, ground.scale.settle_s
    crowd.allow_open_files(4 * (partitions + connections) + 1_000)

    def turn(side: Side) -> dict[str, float]:
        with running(OURS, ground.sources[side]) as broker, ExitStack() as stack:
            time.sleep(settle_s)
            idle = resident_mb(broker)
            clients.create_topic(broker.bootstrap, crowd.TOPIC, partitions)
            crowd.send_one_to_each(broker, partitions)
            time.sleep(settle_s)
            with_partitions = resident_mb(broker)
            for _ in range(connections):
                client = stack.enter_context(RawClient(broker.address))
                assert client.request("api_versions", 0)["error_code"] == 0
            time.sleep(settle_s)
            with_connections = resident_mb(broker)
            return {
                "partition": max((with_partitions - idle) * 1_000 / partitions, LEAST_KB),
                "connection": max((with_connections - with_partitions) * 1_000 / connections, LEAST_KB),
            }

    measures = [
        lower("partition", f"memory of each of {partitions} partitions", "kB"),
        lower("connection", f"memory of each of {connections} idle connections", "kB"),
    ]
    return Trial(measures, partial(_nothing, turn))


def attack(ground: Ground) -> Trial:
    def turn(side: Side) -> dict[str, float]:
        with fresh(OURS, ground.sources[side]) as broker:
            broker.config["metrics.port"] = "0"  # type: ignore[attr-defined]
            broker.start()
            prepare(broker)
            answers_ms: dict[str, float] = {}
            for name, act in ATTACKS.items():
                with victim(broker.address, "ordinary") as waited_ms:
                    act(broker)
                answers_ms[name] = percentile(waited_ms, 0.99)
            return {"worst": max(answers_ms.values())}

    return Trial([lower("worst", "Metadata, p99, under the worst attack", "ms")], partial(_nothing, turn))


def groups(ground: Ground) -> Trial:
    partitions = 100

    @contextmanager
    def stage() -> Iterator[Turn]:
        with _both(ground) as brokers:
            for broker in brokers.values():
                clients.create_topic(broker.bootstrap, TOPIC, partitions)

            def turn(side: Side) -> dict[str, float]:
                def measured(program: str, count: int) -> Mapping[str, float]:
                    name = f"{program}-{time.time_ns()}"
                    job = consumers.Job(brokers[side].bootstrap, TOPIC, partitions, count, group=name)
                    return job.measured(program)

                return {
                    "commits": measured("confluent commits", ground.scale.commits)["rate"],
                    "rebalance": measured("confluent rebalance", ground.scale.rebalances)["median_ms"],
                }

            yield turn

    measures = [
        higher("commits", "offset commits, one after the other", "commits/s"),
        lower("rebalance", f"rebalance of 10 members, {partitions} partitions", "ms"),
    ]
    return Trial(measures, stage)


def transactional_ids(ground: Ground) -> Trial:
    few, many = ground.scale.open_transactions, ground.scale.transactional_ids

    def turn(side: Side) -> dict[str, float]:
        with running(OURS, ground.sources[side]) as broker:
            clients.create_topic(broker.bootstrap, TOPIC, 1)
            transactors.initialise(broker.address, 1)
            begun = time.perf_counter()
            opened = transactors.initialise(broker.address, few)
            each_ms = (time.perf_counter() - begun) * 1_000 / few
            transactors.open_transactions(broker.address, opened, TOPIC)
            time.sleep(ground.scale.settle_s)
            memory_mb = resident_mb(broker)
            transactors.initialise(broker.address, many)
            broker.kill()
            begun = time.perf_counter()
            broker.start()
            transactors.await_all_known(broker.address, many)
            return {"init": each_ms, "memory": memory_mb, "restart": (time.perf_counter() - begun) * 1_000}

    measures = [
        lower("init", f"InitProducerId, each of {few:,} new ids", "ms"),
        lower("memory", f"memory with {few:,} open transactions", "MB"),
        lower("restart", f"ready after kill -9 with {many:,} transactional ids", "ms"),
    ]
    return Trial(measures, partial(_nothing, turn))


# --- clients ----------------------------------------------------------------------------------------------------------


def producer_send(ground: Ground) -> Trial:
    job = producers.Job("", TOPIC, ground.scale.small_records)
    jobs = {
        higher("callbacks", "send() with a callback, 100 B", "records/s"): ("oncelog callbacks", job, "rate"),
        higher("plain", "send() without callback, 100 B", "records/s"): ("oncelog plain", job, "rate"),
        higher("table", "send_table, 100 B", "records/s"): ("oncelog table", _times(job, 5), "rate"),
    }
    return _of_clients(ground, jobs)


def producer_async(ground: Ground) -> Trial:
    job = producers.Job("", TOPIC, ground.scale.async_records, linger_ms=0)
    what = "AsyncProducer, 100 B, awaited in groups of 1,000"
    return _of_clients(ground, {higher("rate", what, "records/s"): ("oncelog groups", job, "rate")})


def producer_latency(ground: Ground) -> Trial:
    job = producers.Job("", TOPIC, ground.scale.synchronous_sends, linger_ms=0)
    jobs = {
        lower(share, f"producer, one synchronous send, {share}", "ms"): ("oncelog synchronous", job, share)
        for share in ("p50", "p99")
    }
    return _of_clients(ground, jobs, partitions=1)


def producer_compression(ground: Ground) -> Trial:
    jobs = {
        higher(codec, f"send() with a callback, JSON, {codec}", "records/s"): (
            "oncelog callbacks",
            producers.Job("", TOPIC, ground.scale.small_records, "json", codec=codec),
            "rate",
        )
        for codec in ("zstd", "lz4")
    }
    return _of_clients(ground, jobs)


def producer_memory(ground: Ground) -> Trial:
    job = producers.Job("", TOPIC, ground.scale.backlog_records)
    measure = lower("growth", "producer, memory while the broker is stopped", "MB")
    return _of_clients(ground, {measure: ("oncelog backlog", job, "growth_mb")})


def producer_partitions(ground: Ground) -> Trial:
    job = producers.Job("", TOPIC, ground.scale.small_records, keyed=True)
    partitions = ground.scale.partitions
    measure = higher("rate", f"producer, keyed records to {partitions} partitions", "records/s")
    return _of_clients(ground, {measure: ("oncelog plain", job, "rate")}, partitions=partitions)


def consumer_read(ground: Ground) -> Trial:
    count = ground.scale.small_records

    def filled(broker: BrokerProcess) -> None:
        clients.write_evenly(broker.bootstrap, TOPIC, PARTITIONS, 5 * count, SMALL)

    def job(times: int) -> consumers.Job:
        return consumers.Job("", TOPIC, PARTITIONS, times * count)

    jobs = {
        higher("poll", "poll(), 100 B", "records/s"): ("oncelog poll", job(2), "rate"),
        higher("iterate", "iterate one record at a time, 100 B", "records/s"): ("oncelog iterate", job(2), "rate"),
        higher("table", "read_table, 100 B", "records/s"): ("oncelog table", job(5), "rate"),
        higher("async", "AsyncConsumer, async for, 100 B", "records/s"): ("oncelog async iterate", job(1), "rate"),
    }
    return _of_clients(ground, jobs, prepared=filled)


def consumer_memory(ground: Ground) -> Trial:
    count = ground.scale.large_records

    def filled(broker: BrokerProcess) -> None:
        clients.write_evenly(broker.bootstrap, TOPIC, PARTITIONS, count, LARGE)

    job = consumers.Job("", TOPIC, PARTITIONS, count, queue_bytes=32 * 1024 * 1024)
    measure = lower("growth", "memory of a consumer that falls behind", "MB")
    return _of_clients(ground, {measure: ("oncelog behind", job, "growth_mb")}, prepared=filled)


def effects_once(ground: Ground) -> Trial:
    count = ground.scale.effects

    def filled(broker: BrokerProcess) -> None:
        clients.create_topic(broker.bootstrap, effects.TOPIC, effects.PARTITIONS)
        effects.write_bookings(broker.bootstrap, count)

    jobs = {
        higher(strategy, f"effects once on SQLite, {strategy}", "effects/s"): (
            "effects",
            effects.Job("", "SQLite", strategy, count),
            "rate",
        )
        for strategy in effects.STRATEGIES
    }
    return _of_clients(ground, jobs, prepared=filled)


def processed(ground: Ground) -> Trial:
    count = ground.scale.async_records

    def filled(broker: BrokerProcess) -> None:
        clients.create_topic(broker.bootstrap, "target", PARTITIONS)
        clients.produce_small(broker.bootstrap, TOPIC, 2 * count, SMALL)

    job = processors.Job("", TOPIC, "target", count, min(1_000, count // 10))
    jobs = {
        higher("process", "process(), 100 B", "records/s"): ("oncelog process", job, "rate"),
        higher("tables", "process(tables=True), 100 B", "records/s"): ("oncelog tables", job, "rate"),
    }
    return _of_clients(ground, jobs, prepared=filled)


# --- both -------------------------------------------------------------------------------------------------------------


def transactions(ground: Ground) -> Trial:
    """confluent-kafka on each side's broker, and each side's producer on the present broker."""
    few = ground.scale.transactions
    sizes = {1: few, 1_000: max(few // 5, 1)}

    @contextmanager
    def stage() -> Iterator[Turn]:
        with _both(ground) as brokers:
            for broker in brokers.values():
                clients.create_topic(broker.bootstrap, TOPIC, 1)

            def turn(side: Side) -> dict[str, float]:
                def records_a_second(client: str, size: int, bootstrap: str, source: Path | None) -> float:
                    return transactors.Job(bootstrap, TOPIC, sizes[size], size).measured(client, source)["records"]

                brokers_own, present = brokers[side].bootstrap, brokers["now"].bootstrap
                return {
                    **{f"broker {size}": records_a_second("confluent", size, brokers_own, None) for size in sizes},
                    **{
                        f"client {size}": records_a_second("oncelog", size, present, ground.sources[side])
                        for size in sizes
                    },
                }

            yield turn

    measures = [
        *(higher(f"broker {size}", f"broker, transactions of {size:,} records", "records/s") for size in sizes),
        *(higher(f"client {size}", f"producer, transactions of {size:,} records", "records/s") for size in sizes),
    ]
    return Trial(measures, stage)


TRIALS: dict[str, Callable[[Ground], Trial]] = {
    "start": start,
    "memory": memory,
    "produce_small": produce_small,
    "produce_large": produce_large,
    "consume": consume,
    "latency": latency,
    "recovery": recovery,
    "crowd": crowded,
    "attack": attack,
    "producer_send": producer_send,
    "producer_async": producer_async,
    "producer_latency": producer_latency,
    "producer_compression": producer_compression,
    "producer_memory": producer_memory,
    "producer_partitions": producer_partitions,
    "consumer_read": consumer_read,
    "consumer_memory": consumer_memory,
    "groups": groups,
    "effects": effects_once,
    "transactions": transactions,
    "transactional_ids": transactional_ids,
    "process": processed,
}


# --- stages -----------------------------------------------------------------------------------------------------------


@contextmanager
def _nothing(turn: Turn) -> Iterator[Turn]:
    """For turns that bring everything themselves."""
    yield turn


@contextmanager
def _both(ground: Ground) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield {side: stack.enter_context(running(OURS, ground.sources[side])) for side in SIDES}


def _of_brokers(
    ground: Ground,
    what: str,
    count: int,
    prepared: Callable[[BrokerProcess], None],
    act: Callable[[BrokerProcess], float],
    turns: int = 1,
) -> Trial:
    """The rate that `act` reports, and what each of its `count` records cost the broker."""

    @contextmanager
    def stage() -> Iterator[Turn]:
        with _both(ground) as brokers:
            for broker in brokers.values():
                prepared(broker)

            def turn(side: Side) -> dict[str, float]:
                broker = brokers[side]
                before_s = cpu_s(broker)
                rate = act(broker)
                return {"rate": rate, "cpu_us": (cpu_s(broker) - before_s) * 1e6 / count}

            yield turn

    measures = [
        higher("rate", what, "records/s"),
        lower("cpu_us", f"{what}, the broker's processor time for each", "µs"),
    ]
    return Trial(measures, stage, turns=turns)


Jobs = Mapping[Measure, tuple[str, Any, str]]
"""The program, its job without an address, and which of its results counts."""


def _of_clients(
    ground: Ground,
    jobs: Jobs,
    *,
    partitions: int = PARTITIONS,
    prepared: Callable[[BrokerProcess], None] = lambda broker: None,
) -> Trial:
    """Each side's client, in a new process for every job, on one broker."""

    @contextmanager
    def stage() -> Iterator[Turn]:
        with running(OURS, ground.sources["now"]) as broker:
            clients.create_topic(broker.bootstrap, TOPIC, partitions)
            prepared(broker)

            def turn(side: Side) -> dict[str, float]:
                done: dict[tuple[str, Any], Mapping[str, float]] = {}
                values = {}
                for measure, (program, job, value) in jobs.items():
                    if (program, job) not in done:
                        done[program, job] = _addressed(job, broker).measured(program, ground.sources[side])
                    values[measure.key] = done[program, job][value]
                return values

            yield turn

    return Trial(list(jobs), stage, is_set_up_anew=False)


def _addressed(job: Any, broker: BrokerProcess) -> Any:
    known = {"bootstrap": broker.bootstrap, "broker_pid": broker.pid}
    return replace(job, **{name: value for name, value in known.items() if hasattr(job, name)})


def _times(job: producers.Job, times: int) -> producers.Job:
    return replace(job, count=times * job.count)
