"""Results for programs: JSON and CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from watersmeet.arrow_rows import python_values
from watersmeet.cli.main import app
from watersmeet.cli.row_formats import RowFormat, RowWriter, csv_cell, plain


def test_changes_have_their_weight(capsys: pytest.CaptureFixture[str]) -> None:
    writer = RowWriter(RowFormat.JSON)
    writer.changes(["id", "né"], [(-1, (1, None)), (1, (1, "é\n"))], 0)
    writer.changes(["id", "né"], [], 1)
    writer.rows(["id"], [(2,)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ['{"id": 1, "né": null, "_tp_delta": -1}', '{"id": 1, "né": "é\\n", "_tp_delta": 1}', '{"id": 2}']


def test_a_query_that_selects_the_weight_itself_has_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    RowWriter(RowFormat.JSON).changes(["id", "_tp_delta"], [(1, (1, -1))], 0)
    assert json.loads(capsys.readouterr().out) == {"id": 1, "_tp_delta": -1}


def test_columns_of_one_name_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    RowWriter(RowFormat.JSON).rows(["id", "id", "id_2", "id"], [(1, 2, 3, 4)])
    assert json.loads(capsys.readouterr().out) == {"id": 1, "id_3": 2, "id_2": 3, "id_4": 4}


def test_csv_has_names_once_and_again_where_they_change(capsys: pytest.CaptureFixture[str]) -> None:
    writer = RowWriter(RowFormat.CSV)
    writer.changes(["a", "b,c"], [], 0)
    writer.changes(["a", "b,c"], [(1, (None, ""))], 1)
    writer.changes(["a", "b,c"], [(-1, ('"', "x\ny"))], 2)
    writer.rows(["n"], [(1.5,)])
    assert capsys.readouterr().out == 'a,"b,c",_tp_delta\n,"",1\n"""","x\ny",-1\n\nn\n1.5\n'


VALUES: list[tuple[Any, Any]] = [
    (True, True),
    (2**63 - 1, 2**63 - 1),
    (0.1, 0.1),
    (float("nan"), "NaN"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    (Decimal("1E-9"), "0.000000001"),
    (dt.date(2026, 2, 28), "2026-02-28"),
    (dt.datetime(2026, 2, 28, 10, 0, 0, 5), "2026-02-28T10:00:00.000005"),  # noqa: DTZ001
    (dt.datetime(2026, 2, 28, 10, tzinfo=dt.UTC), "2026-02-28T10:00:00"),
    (dt.timedelta(seconds=1.5), 1.5),
    (b"\x00\xff", "AP8="),
    ([Decimal(1), None], ["1", None]),
    ({"a": [b"x"]}, {"a": ["eA=="]}),
    ([], []),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=[repr(value) for value, _ in VALUES])
def test_values(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


MAP = pa.map_(pa.string(), pa.list_(pa.map_(pa.int32(), pa.int32())))
MAPS: list[tuple[pa.DataType, Any, Any]] = [
    (MAP, [("a", [[(1, 2)], []]), ("b", None)], {"a": [{"1": 2}, {}], "b": None}),
    (MAP, [], {}),
    (pa.struct([("m", MAP), ("n", pa.int32())]), {"m": [], "n": 1}, {"m": {}, "n": 1}),
    (pa.map_(pa.list_(pa.int32()), pa.int32()), [([1], 2)], {"[1]": 2}),
    (pa.map_(pa.binary(), pa.int32()), [(b"\xff", 2)], {"/w==": 2}),
    (pa.list_(pa.int32()), [], []),
]


@pytest.mark.parametrize(
    ("type", "value", "expected"), MAPS, ids=["nested", "empty", "in a struct", "of arrays", "of bytes", "no map"]
)
def test_maps_are_objects(type: pa.DataType, value: Any, expected: Any) -> None:
    found, null = python_values(pa.array([value, None], type))
    assert (plain(found), null) == (expected, None)


def test_a_row_of_one_null_is_no_empty_line(capsys: pytest.CaptureFixture[str]) -> None:
    RowWriter(RowFormat.CSV).rows(["n"], [(None,), ("",), (1,)])
    lines = capsys.readouterr().out
    assert lines == 'n\n""\n""\n1\n'
    assert [row["n"] for row in csv.DictReader(io.StringIO(lines))] == ["", "", "1"]


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2, max_size=4))
def test_csv_is_read_back(cells: list[str | None]) -> None:
    line = ",".join(map(csv_cell, cells))
    assert next(csv.reader(io.StringIO(line, newline=""))) == [cell or "" for cell in cells]
    with_null = ["NULL" if cell is None else "text" for cell in cells]
    assert [("NULL" if part == "" else "text") for part in map(csv_cell, cells)] == with_null


def test_a_table_for_people_and_a_format_for_programs_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text("SELECT 1")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "job.sql"), "--format", "json", "--view", "table"])
    assert result.exit_code == 2
    assert "--view table and --format json exclude each other" in result.stderr
