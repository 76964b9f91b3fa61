from __future__ import annotations

import json

import pytest

from oncelog.spark.pipeline.plan import guarantee, plan_event, plan_lines
from tests.spark.pipeline.support import HEAD, SINK, SOURCE, read

STEPS = '[[step]]\nname = "split"\npython = "a:b"\noutputs = ["good", "bad"]\n'
FILES = '[[sink]]\nname = "f"\ntype = "files"\npath = "out"\nfrom = "bad"\n'
TOPIC = '[[sink]]\nname = "t"\ntype = "topic"\ntopic = "paid"\ncreate = true\nfrom = "good"\n'


def test_the_plan_tells_what_flows_where_and_whether_once() -> None:
    pipeline = read(HEAD + SOURCE + STEPS + FILES + TOPIC)
    columns = {"source": [("value", "binary")], "good": [("value", "string")], "bad": [("v", "int"), ("w", "int")]}
    assert list(plan_lines(pipeline, columns)) == [
        "pipeline billing: Spark at local[*], processing-time 1 second",
        "  checkpoint /home/me/cp",
        "  source source: subscribe orders at broker:9092 -> value binary",
        "  step split: python a:b(source)\n    good -> value string\n    bad -> v int, w int",
        "  sink f: bad -> parquet files in /home/me/out",
        "    exactly-once: the folder lists the files of each batch once; readers must be Spark, or use that list",
        "  sink t: good -> topic paid at broker:9092, made with 1 partition if missing",
        "    exactly-once: a batch becomes visible by Kafka transactions (billing.t-*) that are decided once",
    ]
    event = json.loads(json.dumps(plan_event(pipeline, columns)))
    assert [(sink["name"], sink["exactly_once"]) for sink in event["sinks"]] == [("f", True), ("t", True)]


@pytest.mark.parametrize(
    ("source", "sink", "exactly_once"),
    [
        (SOURCE, SINK, True),
        (SOURCE, SINK + 'mode = "idempotent"\n', False),
        (SOURCE, SINK + 'mode = "at-least-once"\n', False),
        (SOURCE, '[sink]\ntype = "console"\n', False),
        (SOURCE, '[sink]\ntype = "table"\nurl = "sqlite:///a.db"\ntable = "t"\n', True),
        ('[source]\nformat = "rate"\n', SINK, True),
        ('[source]\nformat = "socket"\n', SINK, False),
    ],
)
def test_what_is_promised_depends_on_both_ends(source: str, sink: str, exactly_once: bool) -> None:
    pipeline = read(HEAD + source + sink)
    promise = guarantee(pipeline, pipeline.sinks[0])
    assert promise.exactly_once == exactly_once
    assert str(promise).startswith("exactly-once: " if exactly_once else "not exactly-once: ")
