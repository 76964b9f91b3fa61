"""One synchronous send: confluent-kafka, linger 0, every record awaited before the next."""

from __future__ import annotations

from bench.clients import create_topic, synchronous_sends_ms
from bench.figures import Figure, Progress, Recorder, at_most, percentile, turns
from bench.peers import both_running
from bench.scale import Scale

P50, P99 = "one synchronous send, p50", "one synchronous send, p99"
VALUE = b"v" * 100


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, "latency", 1)
            synchronous_sends_ms(broker.bootstrap, "latency", scale.synchronous_sends // 2, VALUE)
        for kind in turns(scale.rounds):
            durations = synchronous_sends_ms(brokers[kind].bootstrap, "latency", scale.synchronous_sends, VALUE)
            # The first send of a new connection also fetches metadata.
            steady = durations[len(durations) // 20 :]
            recorder.add(P50, kind, percentile(steady, 0.5))
            recorder.add(P99, kind, percentile(steady, 0.99))
            progress(f"synchronous send: {kind} {percentile(steady, 0.5):.3f} / {percentile(steady, 0.99):.3f} ms")
    return [recorder.figure(P50, "ms", at_most(0.7, 0.5)), recorder.figure(P99, "ms", at_most(0.7, 0.5))]
