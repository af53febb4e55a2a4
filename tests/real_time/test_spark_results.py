"""The tasks before and behind Spark's projection of results."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.real_time.epoch_harness import EpochHarness
from watersmeet.columns import PACKED
from watersmeet.engine.frames import (
    Frame,
    FrameKind,
    bundled,
    from_record_batch,
    mark_frame,
    to_record_batch,
    unbundled,
    with_fillers,
)
from watersmeet.engine.live_results import SparkReading
from watersmeet.runtime.real_time.spark_results import PackFromSpark, UnpackForSpark
from watersmeet.testing.harness import load_script

QUERY = """
CREATE STREAM o (k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
SELECT r, count(*) AS m FROM (SELECT k, CAST(repeat('x', CAST(count(*) AS INT)) AS STRING) AS r FROM o GROUP BY k)
GROUP BY r
"""
RESULTS = pa.table({"n": pa.array([2, 3, 5], pa.int64())})


@pytest.fixture
def reading(tmp_path: Path) -> SparkReading:
    (found,) = EpochHarness(*load_script(QUERY), tmp_path)._live[0].by_spark
    return found


def unpacked(reading: SparkReading, *frames: Frame) -> list[pa.RecordBatch]:
    task = UnpackForSpark(reading, RESULTS.schema)
    return list(task.run([to_record_batch([frame]) for frame in frames]))


def projected(batches: list[pa.RecordBatch], reading: SparkReading) -> list[pa.RecordBatch]:
    """What Spark makes of rows, one row in a batch: of each result the columns that are packed, all of them NULL."""
    kinds = {field.name: field.type for field in reading.packing.schema} | dict.fromkeys(
        reading.packing.hashes, pa.int64()
    )
    found = []
    for batch in batches:
        for number in range(batch.num_rows):
            row = batch.slice(number, 1)
            is_row = row.column(PACKED)[0].as_py() is None
            columns = {name: pa.nulls(1, kind) for name, kind in kinds.items()}
            columns["$t"] = pa.array([row.column("n")[0].as_py() if is_row else None], pa.int64())
            columns |= {"$raw": pa.nulls(1, pa.string()), "$frontier": pa.nulls(1, pa.int64())}
            found.append(pa.RecordBatch.from_pydict({**columns, PACKED: row.column(PACKED)}))
    return found


def test_frames_of_others_pass_and_rows_are_packed_at_their_end(reading: SparkReading) -> None:
    (other,) = bundled([mark_frame(3, 0, "", 7)], 5)
    asked = list(reading.asked(1, RESULTS, 40))
    before = unpacked(reading, *with_fillers([other, *asked], behind_shuffle=True))
    # a bundle, three rows, their end, and fillers, one more behind the last
    assert [batch.num_rows for batch in before] == [1, 1, 3, 1, 1, 1, 1]
    task = PackFromSpark(reading)
    sent = [frame for batch in task.run(projected(before, reading)) for frame in from_record_batch(batch)]
    assert other in sent
    own = [frame for frame in sent if frame.kind is FrameKind.BUNDLE and frame != other]
    assert {frame.input for frame in own} == {reading.operator}
    inner = [frame for bundle in own for frame in unbundled(bundle)]
    assert sum(frame.frontier for frame in inner if frame.kind is FrameKind.ROWS) == 3
    assert {(f.bucket, f.frontier) for f in inner if f.kind is FrameKind.MARK and not f.payload} == {(0, 40), (1, 40)}


def test_the_end_of_one_bucket_does_not_take_the_rows_of_the_next(reading: SparkReading) -> None:
    batches = unpacked(reading, *reading.asked(1, RESULTS, 40), *reading.asked(0, None, 50))
    task = PackFromSpark(reading)
    inner = [
        frame
        for batch in task.run(projected(batches, reading))
        for bundle in from_record_batch(batch)
        if bundle.kind is FrameKind.BUNDLE
        for frame in unbundled(bundle)
    ]
    assert sum(frame.frontier for frame in inner if frame.kind is FrameKind.ROWS) == 3
    frontiers = {(f.part, f.frontier) for f in inner if f.kind is FrameKind.MARK and not f.payload}
    assert frontiers == {("0:1", 40), ("0:0", 50)}
