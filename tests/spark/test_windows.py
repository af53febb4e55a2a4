"""Windows that Spark computes, against those that workers compute, of the same rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.columns import ID
from watersmeet.engine.windows import WindowColumns, with_windows
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.windows import Window, WindowBound, WindowKind, last_before_end
from watersmeet.plan.logical.tree import Input, window_column
from watersmeet.runtime.source_columns import windowed

pytestmark = pytest.mark.spark

S = 1_000_000
WINDOWS = (
    Window(WindowKind.TUMBLE, 10 * S, 10 * S, 3 * S),
    Window(WindowKind.HOP, 10 * S, 4 * S, -S),
    Window(WindowKind.HOP, 5 * S, 5 * S),
    Window(WindowKind.CUMULATE, 12 * S, 4 * S, S),
)
TIMES = [None, *(datetime.fromtimestamp(second / 2, UTC) for second in range(-41, 42, 3))]


@pytest.mark.parametrize("window", WINDOWS, ids=[f"{each.kind.value} {each.size} {each.step}" for each in WINDOWS])
@pytest.mark.parametrize("unit", [TimeUnit.TIMESTAMP, TimeUnit.MILLISECONDS])
def test_spark_and_workers_agree(window: Window, unit: TimeUnit, spark: SparkSession) -> None:
    kind = "TIMESTAMP" if unit is TimeUnit.TIMESTAMP else "BIGINT"
    columns = (StreamColumn(name="ts", type=kind),)
    stream = StreamDef(name="a", columns=columns, time_column="ts", time_unit=unit)
    input = Input(0, "a", stream, windows=(window,))
    values = TIMES if unit is TimeUnit.TIMESTAMP else [None if t is None else int(t.timestamp() * 1000) for t in TIMES]
    ids = [f"n{number}" for number in range(len(values))]
    frame = spark.createDataFrame(list(zip(values, ids, strict=True)), f"ts {kind}, `{ID}` STRING")
    by_spark = windowed(input, frame).toArrow()
    type = pa.timestamp("us", tz="UTC") if unit is TimeUnit.TIMESTAMP else pa.int64()
    names = {bound: window_column(0, bound) for bound in WindowBound}
    rows = pa.table({"ts": pa.array(values, type), ID: pa.array(ids)})
    internal = pa.chunked_array(
        [pa.array([None if t is None else round(t.timestamp() * S) for t in TIMES], pa.int64())]
    )
    by_worker = with_windows(
        rows, internal, (WindowColumns(window, "ts", names, type, unit.scale, last_before_end(unit)),)
    )
    assert _rows(by_spark) == _rows(by_worker)


def _rows(table: pa.Table) -> list[str]:
    return sorted(str([row[name] for name in sorted(row)]) for row in table.to_pylist())
