"""What rows take: the sum over rows in SQL is that of the whole table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from watersmeet.kernels.row_bytes import ROW_OVERHEAD, row_bytes_sql, table_bytes

STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])
COLUMNS = {
    "int": (pa.int32(), [1, None, 3], 4),
    "bool": (pa.bool_(), [True, None, False], 1),
    "double": (pa.float64(), [0.5, None, 2.0], 8),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.50"), None, None], 16),
    "date": (pa.date32(), [date(2026, 1, 1), None, None], 4),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None, None], 8),
    "string": (pa.string(), ["", None, "grüß"], None),
    "binary": (pa.binary(), [b"", None, b"\x00\xff"], None),
    "list": (pa.list_(pa.float64()), [[0.5] * 20, None, []], None),
    "list_of_strings": (pa.list_(pa.string()), [["a", "bc"], None, []], None),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": "xy"}, None, {"a": None, "b": None}],
        None,
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_takes_what_its_rows_take(name: str) -> None:
    type, values, width = COLUMNS[name]
    rows = pa.table({"k": pa.array([1, 2, 3], pa.int64()), name: pa.array(values, type)})
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        each = [size for (size,) in connection.execute(f"SELECT {row_bytes_sql(rows.schema)} FROM rows").fetchall()]
    assert sum(each) == table_bytes(rows)
    if width is not None:
        assert each == [ROW_OVERHEAD + 8 + width] * 3


def test_long_values_take_more() -> None:
    rows = pa.table({"s": ["x" * 1_000], "l": [[0.5] * 100]})
    assert table_bytes(rows) >= 1_000 + 800
    assert table_bytes(rows.slice(0, 0)) == 0
