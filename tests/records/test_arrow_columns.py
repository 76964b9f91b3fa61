"""Arrow tables as rows: every type that is accepted gives the records that its values say, in any chunks and slices,
and what is not accepted is refused by name. On both kernels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records import arrow_columns
from oncelog.records.arrow_columns import TableColumns
from oncelog.records.batch import decode_records
from oncelog.records.model import TableError
from tests.records.strategies import quick

NOW_MS = 1_700_000_000_000
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADER_TYPES = [
    pa.list_(PAIR),
    pa.large_list(PAIR),
    pa.map_(pa.string(), pa.binary()),
    pa.list_(pa.struct([pa.field("key", pa.large_binary()), pa.field("value", pa.string_view())])),
]


def sent(kernel: ModuleType, columns: TableColumns) -> list[tuple[Any, ...]]:
    """What a reader of the table's records finds."""
    found = []
    for piece in columns.pieces(NOW_MS):
        assert piece.first_row == len(found)
        builder = kernel.BatchBuilder()
        builder.append_columns(piece.rows, 0, piece.rows.row_count, 2**31)
        found += [
            (record.timestamp_ms, record.key, record.value, record.headers)
            for record in decode_records(builder.seal())
        ]  # fmt: skip
    return found


def values_of(kernel: ModuleType, column: Any) -> list[bytes | None]:
    return [value for _, _, value, _ in sent(kernel, TableColumns.of(pa.table({"value": column})))]


class TestTypes:
    @pytest.mark.parametrize("kind", BYTES + TEXTS, ids=str)
    def test_bytes_and_text(self, kernel: ModuleType, kind: Any) -> None:
        items = ["", None, "short", "ä" * 40, None, "longer than what a view keeps inline"]
        column = pa.array(items, pa.string()).cast(kind)
        expected = [None if item is None else item.encode() for item in items]
        assert values_of(kernel, column) == expected
        assert values_of(kernel, column.slice(2, 3)) == expected[2:5]

    def test_fixed_sizes(self, kernel: ModuleType) -> None:
        items = [b"abc", None, b"def", b"ghi"]
        column = pa.array(items, pa.binary(3))
        assert values_of(kernel, column) == items
        assert values_of(kernel, column.slice(1, 2)) == items[1:3]

    @pytest.mark.parametrize("kind", BYTES + TEXTS, ids=str)
    def test_dictionaries_that_differ_between_chunks(self, kernel: ModuleType, kind: Any) -> None:
        """Such as categories of polars, which are views."""
        chunks = [(["red", "blue"], [0, 1, None, 0]), (["green", "red"], [0, 1])]
        column = pa.chunked_array(
            pa.DictionaryArray.from_arrays(pa.array(indices, pa.uint32()), pa.array(words, pa.string()).cast(kind))
            for words, indices in chunks
        )
        expected = [b"red", b"blue", None, b"red", b"green", b"red"]
        assert values_of(kernel, column) == expected
        assert values_of(kernel, column.slice(1, 4)) == expected[1:5]
        table = pa.table({"key": column, "value": column})
        assert [row for piece in TableColumns.of(table).pieces(NOW_MS) for row in piece.keys_and_values()] == [
            (word, word) for word in expected
        ]

    def test_types_built_on_these(self, kernel: ModuleType) -> None:
        column = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a": 1}', None]))
        assert values_of(kernel, column) == [b'{"a": 1}', None]

    def test_nothing_but_nulls(self, kernel: ModuleType) -> None:
        assert values_of(kernel, pa.nulls(3)) == [None] * 3
        table = pa.table({"key": pa.nulls(2), "value": pa.array([b"1", b"2"])})
        assert [key for _, key, _, _ in sent(kernel, TableColumns.of(table))] == [None, None]

    @pytest.mark.parametrize("kind", HEADER_TYPES, ids=str)
    def test_headers(self, kernel: ModuleType, kind: Any) -> None:
        rows = [[("a", b"1"), ("b", None)], None, [], [("a", b"2"), ("a", b"3")], [("", b"")]]
        table = pa.table({"value": [b""] * 5, "headers": pa.array(rows, HEADER_TYPES[0])})
        is_map = pa.types.is_map(kind)
        headers = pa.array(rows, kind) if is_map else table.column("headers").cast(kind)
        table = table.set_column(1, "headers", headers)
        expected = [tuple(row or ()) for row in rows]
        assert [headers for *_, headers in sent(kernel, TableColumns.of(table))] == expected
        assert [headers for *_, headers in sent(kernel, TableColumns.of(table.slice(2, 2)))] == expected[2:4]

    @pytest.mark.parametrize(
        ("column", "expected"),
        [
            (pa.array([5, None, 7], pa.int64()), [5, NOW_MS, 7]),
            (pa.array([5, None, 7], pa.timestamp("ms")), [5, NOW_MS, 7]),
            (pa.array([5, None, 7], pa.timestamp("s", "UTC")), [5_000, NOW_MS, 7_000]),
            (pa.array([5_999, None, 7_000], pa.timestamp("us", "Europe/Berlin")), [5, NOW_MS, 7]),
            (pa.array([5_999_999, None, 7_000_000], pa.timestamp("ns")), [5, NOW_MS, 7]),
        ],
        ids=lambda case: str(getattr(case, "type", "")),
    )
    def test_timestamps(self, kernel: ModuleType, column: Any, expected: list[int]) -> None:
        table = pa.table({"value": [b""] * 3, "timestamp": column})
        assert [time for time, *_ in sent(kernel, TableColumns.of(table))] == expected
        assert [time for time, *_ in sent(kernel, TableColumns.of(table.slice(1)))] == expected[1:]

    @pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
    def test_partitions(self, kind: Any) -> None:
        table = pa.table({"value": [b""] * 4, "partition": pa.array([3, None, 0, 2], kind)})
        columns = TableColumns.of(table.slice(1))
        (piece,) = columns.pieces(NOW_MS)
        assert list(memoryview(piece.partitions or b"").cast("B").cast("i")[:3]) == [-1, 0, 2]
        assert columns.greatest_partition() == 2
        assert TableColumns.of(table.select(["value"])).greatest_partition() is None

    def test_one_partition_for_all_rows_is_no_column(self) -> None:
        columns = TableColumns.of(pa.table({"value": [b""], "partition": ["any"]}), partition=7)
        (piece,) = columns.pieces(NOW_MS)
        assert (columns.partition, columns.greatest_partition(), piece.partitions) == (7, 7, None)


class TestPieces:
    @quick
    @given(st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=6), max_size=6), st.data())
    def test_any_chunks_and_slices_give_the_rows_in_order(
        self, kernel: ModuleType, chunks: list[list[bytes | None]], data: st.DataObject
    ) -> None:
        keys = [item for chunk in chunks for item in chunk]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=4)))
        values = pa.chunked_array(
            [keys[start:end] for start, end in zip([0, *cuts], [*cuts, len(keys)], strict=True)], pa.large_binary()
        )
        table = pa.table({"key": pa.chunked_array(chunks, pa.binary()), "value": values})
        start = data.draw(st.integers(0, len(keys)))
        piece_rows = data.draw(st.sampled_from((1, 2, 5, 1_000)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_columns, "PIECE_ROWS", piece_rows)
            found = sent(kernel, TableColumns.of(table.slice(start)))
        assert [(key, value) for _, key, value, _ in found] == [(key, key) for key in keys[start:]]

    def test_large_chunks_are_cut_and_small_ones_joined(self) -> None:
        large = pa.array([b"x"] * (2 * arrow_columns.PIECE_ROWS + 10))
        table = pa.table({"value": pa.chunked_array([large, [b"y"], [b"z"], large])})
        sizes = [piece.rows.row_count for piece in TableColumns.of(table).pieces(NOW_MS)]
        assert sum(sizes) == table.num_rows
        assert max(sizes) <= arrow_columns.PIECE_ROWS
        assert len(sizes) <= 6

    def test_small_chunks_of_large_values_are_not_joined_without_end(self) -> None:
        value = bytes(arrow_columns.PIECE_BYTES // 3)
        table = pa.table({"value": pa.chunked_array([[value]] * 10, pa.binary())})
        sizes = [piece.rows.row_count for piece in TableColumns.of(table).pieces(NOW_MS)]
        assert sum(sizes) == 10
        assert max(sizes) <= 3

    @pytest.mark.parametrize("chunks", [[], [[]], [[], []]])
    def test_no_rows(self, chunks: list[list[bytes]]) -> None:
        columns = TableColumns.of(pa.table({"value": pa.chunked_array(chunks, pa.binary())}))
        assert (columns.row_count, list(columns.pieces(NOW_MS))) == (0, [])

    def test_a_record_batch_is_a_table_too(self, kernel: ModuleType) -> None:
        batch = pa.record_batch({"value": [b"1", b"2"]})
        assert len(sent(kernel, TableColumns.of(batch))) == 2

    def test_keys_and_values_for_partitioners_in_python(self) -> None:
        table = pa.table({"key": ["a", None], "value": pa.array([b"12", b"34"], pa.binary(2))})
        (piece,) = TableColumns.of(table).pieces(NOW_MS)
        assert list(piece.keys_and_values()) == [(b"a", b"12"), (None, b"34")]
        (piece,) = TableColumns.of(table.select(["value"])).pieces(NOW_MS)
        assert list(piece.keys_and_values()) == [(None, b"12"), (None, b"34")]


class TestNames:
    TABLE = pa.table({"key": ["k"], "value": ["v"], "id": ["i"], "body": ["b"]})

    def test_columns_with_the_names_of_fields_are_taken(self, kernel: ModuleType) -> None:
        assert sent(kernel, TableColumns.of(self.TABLE)) == [(NOW_MS, b"k", b"v", ())]

    def test_others_are_named(self, kernel: ModuleType) -> None:
        assert sent(kernel, TableColumns.of(self.TABLE, key="id", value="body")) == [(NOW_MS, b"i", b"b", ())]

    def test_one_column_may_be_both(self, kernel: ModuleType) -> None:
        assert sent(kernel, TableColumns.of(self.TABLE, key="body", value="body")) == [(NOW_MS, b"b", b"b", ())]

    @pytest.mark.parametrize("field", ["key", "value", "headers", "timestamp", "partition"])
    def test_a_name_that_is_not_there_is_refused_with_those_that_are(self, field: str) -> None:
        with pytest.raises(TableError, match=rf"{field}='boddy' names no column; the table has 'key', 'value', 'id'"):
            TableColumns.of(self.TABLE, **{field: "boddy"})

    def test_no_value_is_refused(self) -> None:
        with pytest.raises(TableError, match=r"no column is called 'value'.*'id', 'body'"):
            TableColumns.of(self.TABLE.select(["id", "body"]))

    def test_two_columns_of_one_name_are_refused(self) -> None:
        table = pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"])], ["value", "value"])
        with pytest.raises(TableError, match="2 columns are called 'value'"):
            TableColumns.of(table)

    def test_no_name_and_no_table(self) -> None:
        with pytest.raises(TypeError, match="value= takes the name"):
            TableColumns.of(self.TABLE, value=3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="partition= takes a number or the name"):
            TableColumns.of(self.TABLE, partition=1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"pyarrow\.Table, .* has __arrow_c_stream__; not dict"):
            TableColumns.of({"value": ["v"]})


class Exporting:
    """What polars and DuckDB offer: a stream of Arrow batches."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class ExportingOneBatch:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("kind", ["pandas", "stream", "array"])
def test_tables_of_others(kernel: ModuleType, kind: str) -> None:
    ours = pa.table({"key": ["k1", None], "value": [b"v1", b"v2"]})
    theirs = {
        "pandas": ours.to_pandas,
        "stream": lambda: Exporting(ours),
        "array": lambda: ExportingOneBatch(ours.to_batches()[0]),
    }[kind]()
    assert sent(kernel, TableColumns.of(theirs)) == sent(kernel, TableColumns.of(ours))


class TestRefusals:
    @pytest.mark.parametrize("field", ["key", "value"])
    @pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.list_(pa.string()), pa.bool_(), PAIR], ids=str)
    def test_other_types_than_bytes(self, field: str, kind: Any) -> None:
        table = pa.table({"key": ["k"], "value": ["v"]})
        table = table.set_column(table.column_names.index(field), field, pa.nulls(1, kind))
        with pytest.raises(TableError) as refused:
            TableColumns.of(table)
        assert f"column '{field}', the {field}, is of type {kind}; accepted is binary, string" in str(refused.value)

    @pytest.mark.parametrize(
        ("field", "kind", "accepted"),
        [
            ("headers", pa.string(), "list<struct<key: string"),
            ("headers", pa.list_(pa.string()), "list<struct<key: string"),
            ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])), "list<struct<key: str"),
            ("headers", pa.map_(pa.string(), pa.int64()), "map<string, binary>"),
            ("timestamp", pa.int32(), "timestamp, or int64 of milliseconds"),
            ("timestamp", pa.date32(), "timestamp, or int64 of milliseconds"),
            ("partition", pa.string(), "an integer type"),
            ("partition", pa.float64(), "an integer type"),
        ],
        ids=str,
    )
    def test_other_types_elsewhere(self, field: str, kind: Any, accepted: str) -> None:
        table = pa.table({"value": ["v"], "other": pa.nulls(1, kind)})
        with pytest.raises(TableError) as refused:
            TableColumns.of(table, **{field: "other"})
        assert f"column 'other', the {field}, is of type {kind}; accepted is" in str(refused.value)
        assert accepted in str(refused.value)

    @pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us")], ids=str)
    def test_times_before_1970(self, kind: Any) -> None:
        table = pa.table({"value": ["v", "w"], "timestamp": pa.array([5, -1], kind)})
        with pytest.raises(TableError, match=r"'timestamp', the timestamp, has a row with .*before 1970"):
            TableColumns.of(table)

    def test_negative_partitions(self) -> None:
        table = pa.table({"value": ["v", "w"], "partition": [0, -1]})
        with pytest.raises(TableError, match="'partition', the partition, has a row with -1; partitions begin at 0"):
            TableColumns.of(table)

    @pytest.mark.parametrize("pairs", [[None], [{"key": None, "value": b"v"}]])
    def test_headers_without_a_key(self, pairs: list[Any]) -> None:
        table = pa.table({"value": ["v", "w"], "headers": pa.array([None, pairs], pa.list_(PAIR))})
        with pytest.raises(TableError, match="'headers', the headers, has a header that is null or has no key"):
            TableColumns.of(table)
        assert TableColumns.of(table.slice(0, 1)).row_count == 1


class TestTablesOfOthers:
    """By `__arrow_c_stream__`, where these libraries are installed."""

    ROWS = [(b"red", b"1"), (b"blue", None), (None, b"3"), (b"red", b"4")]

    def test_polars(self, kernel: ModuleType) -> None:
        polars = pytest.importorskip("polars", reason="polars is not installed")
        for kind in (polars.String, polars.Categorical, polars.Enum(["red", "blue"])):
            keys = polars.Series(["red", "blue", None, "red"], dtype=kind)
            frame = polars.DataFrame({"key": keys, "value": [b"1", None, b"3", b"4"]})
            for table in (frame, polars.concat([frame[:1], frame[1:]], rechunk=False)):
                assert [row[1:3] for row in sent(kernel, TableColumns.of(table))] == self.ROWS

    def test_duckdb(self, kernel: ModuleType) -> None:
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
        rows = "values ('red', '1'), ('blue', null), (null, '3'), ('red', '4')"
        for kind in ("varchar", "enum ('red', 'blue')"):
            relation = duckdb.sql(f"select k::{kind} as key, v::blob as value from ({rows}) t(k, v)")
            assert [row[1:3] for row in sent(kernel, TableColumns.of(relation))] == self.ROWS
