from __future__ import annotations

import pytest

from oncelog.spark.pipeline.sql_errors import MAX_LENGTH, line_in_query, sentence

UNRESOLVED = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `valu` cannot be resolved. \
Did you mean one of the following? [`value`, `timestamp`]. SQLSTATE: 42703; line 2 pos 2;
'Project ['valu, timestamp#0]
+- ~SubqueryAlias source
"""
NOT_FOUND = """\
[TABLE_OR_VIEW_NOT_FOUND] The table or view `nope` cannot be found. Verify the spelling and correctness of the schema \
and catalog.
Search path: [`system`.`builtin`].
To tolerate the error on drop use DROP VIEW IF EXISTS or DROP TABLE IF EXISTS. SQLSTATE: 42P01; line 12 pos 1;
'Project [unresolvedalias(1)]
"""
SYNTAX = """

[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 3, pos 1)

== SQL ==
SELECT 1 FORM
"""
WORKER = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 failed \
1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{error}

	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
Caused by: something else
"""


@pytest.mark.parametrize(
    ("message", "expected", "line"),
    [
        (
            UNRESOLVED,
            "A column, variable, or function parameter with name `valu` cannot be resolved. Did you mean one of the "
            "following? [`value`, `timestamp`].",
            1,
        ),
        (NOT_FOUND, "The table or view `nope` cannot be found.", 11),
        (SYNTAX, "Syntax error at or near 'x'.", 2),
        ("no structure at all", "no structure at all", None),
    ],
)
def test_the_sentence_and_the_line_of_an_error_of_a_query(message: str, expected: str, line: int | None) -> None:
    assert sentence(message) == expected
    assert line_in_query(message) == line


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero"),
        ("oncelog.errors.UnknownTopicOrPartition: there is no topic 'x'", "there is no topic 'x'"),
        ("oncelog.spark.options.BadOption: the option 'topic' is empty", "the option 'topic' is empty"),
        ("pyspark.errors.exceptions.base.PySparkRuntimeError: [CODE] it broke", "PySparkRuntimeError: [CODE] it broke"),
    ],
)
def test_an_error_of_a_worker_is_what_its_traceback_ends_with(error: str, expected: str) -> None:
    assert sentence(WORKER.format(error=error)) == expected


def test_a_long_error_is_cut() -> None:
    assert len(sentence("x" * 10_000)) == MAX_LENGTH
