"""What is outside the file: folders, functions, brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import oncelog
from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.pipeline.document import read_document
from oncelog.spark.pipeline.functions import NoFunction, load_function
from oncelog.spark.pipeline.reading import read_pipeline
from oncelog.spark.pipeline.values import FunctionStep, Pipeline
from oncelog.spark.pipeline.world import OWNER_FILE, _checkpoint_problems, prepare, problems_outside
from oncelog.spark.sink.checkpoint import claim
from tests.spark.pipeline.support import FILE, HEAD
from tests.support.process import BrokerProcess

RATE = '[source]\nformat = "rate"\n'
CONSOLE = '[sink]\ntype = "console"\n'


def read_in(folder: Path, text: str, bootstrap: str = "127.0.0.1:1") -> Pipeline:
    return read_pipeline(read_document(text, FILE), folder=str(folder), bootstrap_servers=bootstrap)


def found(pipeline: Pipeline) -> list[str]:
    return [str(problem) for problem in problems_outside(pipeline)]


def test_a_checkpoint_belongs_to_the_pipeline_that_made_it(tmp_path: Path) -> None:
    pipeline = read_in(tmp_path, HEAD + RATE + CONSOLE)
    assert found(pipeline) == []
    assert not (tmp_path / "cp").exists(), "looking makes nothing"
    prepare(pipeline)
    assert found(pipeline) == []
    other = read_in(tmp_path, HEAD.replace("billing", "other") + RATE + CONSOLE)
    assert found(other) == [
        f'pipeline.toml:3: [pipeline] "checkpoint": {tmp_path}/cp belongs to the pipeline "billing"; choose another '
        "folder, or give the pipeline its old name"
    ]


@pytest.mark.parametrize("owner", [None, "", "[]", "{}", json.dumps({"pipelin": "billing"})])
def test_a_folder_with_other_files_is_no_checkpoint(tmp_path: Path, owner: str | None) -> None:
    (tmp_path / "cp").mkdir()
    (tmp_path / "cp" / ("letters" if owner is None else OWNER_FILE)).write_text(owner or "")
    [problem] = found(read_in(tmp_path, HEAD + RATE + CONSOLE))
    assert problem.startswith(
        f'pipeline.toml:3: [pipeline] "checkpoint": {tmp_path}/cp has files and is not a checkpoint'
    )


def test_a_file_in_the_way_of_the_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "cp").write_text("")
    assert found(read_in(tmp_path, HEAD + RATE + CONSOLE))[0].endswith(f"{tmp_path}/cp is not a folder")
    below = HEAD.replace('"cp"', '"cp/deep/er"')
    assert found(read_in(tmp_path, below + RATE + CONSOLE))[0].endswith(f"{tmp_path}/cp cannot be written to")


@pytest.mark.real
def test_a_master_that_does_not_answer_and_files_that_are_not_there(tmp_path: Path) -> None:
    head = HEAD + 'master = "spark://127.0.0.1:1"\n'
    problems = found(read_in(tmp_path, head + '[source]\nformat = "json"\npath = "gone"\n' + CONSOLE))
    assert problems[0].startswith('pipeline.toml:4: [pipeline] "master" does not answer (127.0.0.1:1: ')
    assert problems[1] == f'pipeline.toml:7: [source] "path": there is no {tmp_path}/gone'


@pytest.mark.real
def test_a_broker_that_does_not_answer_is_named_where_it_is_written(tmp_path: Path) -> None:
    source = '[source]\nsubscribe = "a"\nkafka.bootstrap.servers = "127.0.0.1:1"\nkafka.default.api.timeout.ms = 500\n'
    [problem] = found(read_in(tmp_path, HEAD + source + CONSOLE))
    assert problem.startswith("pipeline.toml:6: [source] no broker answers (127.0.0.1:1: Connection refused)")


def test_topics_must_be_there_or_are_made(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> None:
    there, missing = new_topic(), new_topic()
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_topic(there, partitions=1)
    source = f'[source]\nsubscribe = ["{there}", "{there}x"]\n'
    sink = f'[sink]\ntype = "topic"\ntopic = "{missing}"\n'
    first, second = found(read_in(tmp_path, HEAD + source + sink, broker.bootstrap))
    assert first.startswith(
        f'pipeline.toml:5: [source] there is no topic "{there}x" at {broker.bootstrap}; did you mean'
    )
    assert second.startswith(f'pipeline.toml:8: [sink] there is no topic "{missing}" at {broker.bootstrap}')
    assert second.endswith(f"(add create = true, or `oncelog topics create {missing}`)")

    good = read_in(
        tmp_path,
        HEAD + f'[source]\nsubscribe = "{there}"\n' + sink + "create = true\npartitions = 3\n",
        broker.bootstrap,
    )
    assert found(good) == []
    assert prepare(good) == [f"topic {missing} with 3 partitions"]
    assert prepare(good) == []
    with oncelog.Admin(broker.bootstrap) as admin:
        assert len(admin.describe_topic(missing).partitions) == 3


def function_step(tmp_path: Path, lines: str) -> FunctionStep:
    step = read_in(tmp_path, HEAD + RATE + "[[step]]\n" + lines + CONSOLE).steps[0]
    assert isinstance(step, FunctionStep)
    return step


def test_functions_come_from_files_and_modules_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "steps_in_file.py").write_text("def double(frame, times=2): return (frame, times)\n")
    (tmp_path / "steps_in_module.py").write_text("def same(frame): return frame\n")
    step = function_step(tmp_path, 'python = "steps_in_file.py:double"\nwith.times = 3\n')
    assert load_function(step, str(tmp_path))("x", **step.arguments) == ("x", 3)
    step = function_step(tmp_path, 'python = "steps_in_module:same"\n')
    assert load_function(step, str(tmp_path))("x") == "x"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('python = "double"\n', 'write "module:function" or "file.py:function", not \'double\''),
        ('python = "gone.py:double"\n', "there is no file "),
        ('python = "no_such_module_here:f"\n', "no_such_module_here cannot be imported: ModuleNotFoundError"),
        ('python = "broken_steps.py:f"\n', "cannot be imported: ZeroDivisionError: division by zero"),
        ('python = "good_steps.py:duoble"\n', "good_steps.py has no function 'duoble'; did you mean \"double\"?"),
        (
            'python = "good_steps.py:double"\nwith.tims = 3\n',
            '"good_steps.py:double" cannot be called with 1 data frame',
        ),
        ('python = "good_steps.py:double"\nfrom = ["source", "source"]\n', "cannot be called with 2 data frames"),
        ('tool = "dedupliate"\n', 'there is no stream tool "dedupliate"; did you mean "deduplicate"?'),
    ],
)
def test_a_function_that_cannot_be_called_is_said_before_the_start(tmp_path: Path, lines: str, expected: str) -> None:
    (tmp_path / "broken_steps.py").write_text("1 / 0\n")
    (tmp_path / "good_steps.py").write_text("def double(frame, *, times=2): return frame\n")
    with pytest.raises(NoFunction) as raised:
        load_function(function_step(tmp_path, lines), str(tmp_path))
    assert expected in str(raised.value)


def test_a_sinks_checkpoint_of_another_prefix_is_named_before_anything_starts(tmp_path: Path) -> None:
    sink = '[sink]\ntype = "topic"\ntopic = "paid"\ncreate = true\ntransactional.id.prefix = "a"\n'
    pipeline = read_in(tmp_path, HEAD + RATE + sink)
    prepared = tmp_path / "cp" / "sink"
    prepared.mkdir(parents=True)
    (tmp_path / "cp" / OWNER_FILE).write_text(json.dumps({"pipeline": "billing"}))
    claim(Checkpoint(str(prepared)), "another")
    [problem] = list(_checkpoint_problems(pipeline))
    assert str(problem).startswith("pipeline.toml:10: [sink] the checkpoint")
    assert "belongs to the transactional.id.prefix 'another'" in problem.text
