from __future__ import annotations

from oncelog.client.producer_counters import WINDOW_MS, Peaks, ProducerCounters

START_MS = 5_000


def test_totals_only_grow() -> None:
    counters = ProducerCounters(START_MS)
    counters.batches_left(1, records=10, size_bytes=100, raw_bytes=400, queue_time_ms=3)
    counters.at_most(batch_bytes=100, queue_time_ms=3)
    counters.batches_left(1, records=5, size_bytes=50, raw_bytes=60, queue_time_ms=4)
    counters.at_most(batch_bytes=50, queue_time_ms=4)
    counters.request_answered(latency_ms=7, throttle_ms=0)
    counters.tick(START_MS + 10 * WINDOW_MS)
    assert (counters.records_sent, counters.batches_sent, counters.queue_time_ms) == (15, 2, 7)
    assert (counters.batch_bytes_sent, counters.batch_raw_bytes_sent) == (150, 460)
    assert (counters.requests_answered, counters.request_latency_ms) == (1, 7)


def test_a_young_producers_first_window_counts_as_full() -> None:
    counters = ProducerCounters(START_MS)
    counters.records_sent += 600
    recent = counters.recent(START_MS + 1_000)
    assert recent.totals.records_sent == 600
    assert recent.elapsed_ms == WINDOW_MS + 1_000


def test_what_is_recent_happened_in_the_current_or_the_previous_window() -> None:
    counters = ProducerCounters(START_MS)
    counters.records_sent += 1
    counters.tick(START_MS + WINDOW_MS)
    counters.records_sent += 10
    recent = counters.recent(START_MS + WINDOW_MS + 1_000)
    assert (recent.totals.records_sent, recent.elapsed_ms) == (11, WINDOW_MS + 1_000)
    counters.tick(START_MS + 2 * WINDOW_MS)
    counters.records_sent += 100
    recent = counters.recent(START_MS + 2 * WINDOW_MS + 1_000)
    assert (recent.totals.records_sent, recent.elapsed_ms) == (110, WINDOW_MS + 1_000)


def test_a_window_lasts_until_it_is_over() -> None:
    counters = ProducerCounters(START_MS)
    counters.records_sent += 1
    for _ in range(5):
        counters.tick(START_MS + WINDOW_MS - 1)
    assert counters.recent(START_MS + WINDOW_MS - 1).totals.records_sent == 1


def test_a_late_tick_keeps_rates_right() -> None:
    counters = ProducerCounters(START_MS)
    counters.records_sent += 500
    counters.tick(START_MS + 10 * WINDOW_MS)
    recent = counters.recent(START_MS + 10 * WINDOW_MS)
    assert (recent.totals.records_sent, recent.elapsed_ms) == (500, 10 * WINDOW_MS)


def test_peaks_are_forgotten_with_their_window() -> None:
    counters = ProducerCounters(START_MS)
    counters.batches_left(1, records=1, size_bytes=900, raw_bytes=900, queue_time_ms=9)
    counters.at_most(batch_bytes=900, queue_time_ms=9)
    counters.request_answered(latency_ms=90, throttle_ms=19)
    counters.tick(START_MS + WINDOW_MS)
    counters.batches_left(1, records=1, size_bytes=100, raw_bytes=900, queue_time_ms=1)
    counters.at_most(batch_bytes=100, queue_time_ms=1)
    counters.request_answered(latency_ms=10, throttle_ms=0)
    assert counters.recent(START_MS + WINDOW_MS).peaks == Peaks(900, 9, 90, 19)
    counters.tick(START_MS + 2 * WINDOW_MS)
    assert counters.recent(START_MS + 2 * WINDOW_MS).peaks == Peaks(100, 1, 10, 0)
    counters.tick(START_MS + 3 * WINDOW_MS)
    assert counters.recent(START_MS + 3 * WINDOW_MS).peaks == Peaks()
