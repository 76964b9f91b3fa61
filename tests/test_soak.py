"""The soak's verdict and picture, from samples that are known. (The soak itself is `python -m bench.soak`.)"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.soak.picture import draw
from bench.soak.samples import Sample
from bench.soak.trend import trends


def run(minutes: int, rss_mb_per_hour: float, *, start_up_mb: float = 0.0, threads_at_the_end: int = 5) -> list[Sample]:
    """A sample every five seconds; what the start takes is there after a quarter of the run."""
    seconds = range(0, minutes * 60 + 1, 5)
    return [
        Sample(
            at_s=at_s,
            rss_mb=50 + rss_mb_per_hour * at_s / 3_600 + (start_up_mb if at_s > minutes * 15 else 0),
            pss_mb=40.0,
            descriptors=30 + at_s // 5 % 3,
            threads=5 if at_s < minutes * 45 else threads_at_the_end,
            sockets=10,
            disk_mb=20.0,
            cpu=0.1,
            counts={"producer ids": at_s},
            failures=0,
        )
        for at_s in seconds
    ]


def test_a_rise_is_found_by_its_size() -> None:
    memory, descriptors, threads = trends(run(60, 30.0))
    assert memory.per_hour == pytest.approx(30.0)
    assert memory.at(3_600) == pytest.approx(80.0)
    assert not memory.is_flat
    assert descriptors.is_flat
    assert threads.is_flat


def test_what_the_start_takes_is_no_rise() -> None:
    memory, *_ = trends(run(60, 1.0, start_up_mb=100.0))
    assert memory.per_hour == pytest.approx(1.0)
    assert memory.is_flat


def test_one_thread_more_is_a_rise() -> None:
    *_, threads = trends(run(60, 0.0, threads_at_the_end=8))
    assert not threads.is_flat


def test_of_two_samples_nothing_is_said() -> None:
    assert trends([]) == []
    assert trends(run(60, 0.0)[:2]) == []


def test_the_picture_is_an_image_that_says_how_long_it_took() -> None:
    samples = run(12, 5.0)
    picture = ElementTree.fromstring(draw(samples, trends(samples)))
    title = picture.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert (title.text or "").startswith("12 minutes of mixed load")
    lines = list(picture.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 13  # memory with its trend, three that are held, disk, processor, five that are used up
