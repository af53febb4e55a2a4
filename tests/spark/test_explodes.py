"""Elements of arrays that Spark makes rows of, against those that workers do, of the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.columns import ID
from watersmeet.engine.explodes import ExplodedColumns, with_elements
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.explodes import Explode
from watersmeet.plan.logical.tree import Input
from watersmeet.runtime.source_columns import exploded

pytestmark = pytest.mark.spark

ARRAYS: dict[str, list[Any]] = {
    "ARRAY<INT>": [[1, None, 2], [], None],
    "ARRAY<STRUCT<name: STRING, n: INT>>": [[("a", 1), None, ("b", None)], [], None],
    "MAP<STRING, INT>": [{"a": 1, "b": None}, {}, None],
    "ARRAY<ARRAY<INT>>": [[[1], [], None], [], None],
}
FIELDS = {"ARRAY<STRUCT<name: STRING, n: INT>>": ("name", "n"), "MAP<STRING, INT>": ("key", "value")}


@pytest.mark.parametrize("kind", ARRAYS)
def test_spark_and_workers_agree(kind: str, spark: SparkSession) -> None:
    fields = tuple((f"${field}", field) for field in FIELDS.get(kind, ()))
    columns = (StreamColumn(name="ts", type="BIGINT"), StreamColumn(name="a", type=kind))
    stream = StreamDef(name="s", columns=columns, time_column="ts", time_unit=TimeUnit.SECONDS)
    array = exp.column(exp.to_identifier("s:a", quoted=True))
    explode = Explode(array, exp.DataType.build(kind, dialect="spark"), False, "$p", "$e", fields, "explode(a)")
    input = Input(0, "s", stream, explodes=(explode,))
    given = [(time, value, f"n{time}") for time, value in enumerate([*ARRAYS[kind], ARRAYS[kind][0]])]
    frame = spark.createDataFrame(given, f"ts BIGINT, a {kind}, `{ID}` STRING")
    compared = ["ts", ID, "$p", *(name for name, _ in fields)]
    if not explode.is_map:  # an entry has no name in SQL, so it never travels
        compared.append("$e")
    by_spark = exploded(input, frame, F.col("ts") == 3).select(*compared).toArrow()
    rows = frame.toArrow()
    whole = pa.chunked_array([pa.array([time == 3 for time, *_ in given])])
    by_worker = with_elements(rows, (ExplodedColumns("a", "$p", "$e", fields, last=True),), whole).select(compared)
    assert _rows(by_spark) == _rows(by_worker)
    assert by_spark["$p"].type == by_worker["$p"].type == pa.int32()
    assert by_spark.num_rows == len(ARRAYS[kind][0]) + 3


def _rows(table: pa.Table) -> list[str]:
    return sorted(str([row[name] for name in sorted(row)]) for row in table.to_pylist())
