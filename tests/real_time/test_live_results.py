"""What a bucket sends on in real time to the operators that read its results."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.real_time.epoch_harness import EpochHarness
from watersmeet.engine.frames import Frame, FrameKind, counter_frame, mark_frame
from watersmeet.engine.live_results import LiveOperator
from watersmeet.engine.outbox import Outbox
from watersmeet.errors import UnsupportedError, WatersmeetError
from watersmeet.kernels.api import NEVER
from watersmeet.testing.harness import load_script

STREAM = "CREATE STREAM o (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);"
COUNTS = "SELECT k, count(*) AS n FROM o GROUP BY k"


def operators(query: str, folder: Path) -> list[LiveOperator]:
    """The operators of a query over ``STREAM``, in two buckets."""
    return list(EpochHarness(*load_script(STREAM + query), folder)._live)


def sent(operator: LiveOperator, *frames: Frame) -> list[tuple[int, Frame]]:
    """What bucket 1 of an operator without results sends on, with the operators that it is for."""
    outbox = Outbox(operator.spec, 1, None, frames)
    return [(to, frame) for to, found in operator.addressed(1, outbox) for frame in found]


def test_every_bucket_of_a_reader_hears_of_an_epoch_without_a_frontier(tmp_path: Path) -> None:
    counts, *_ = operators(f"SELECT n, count(*) AS m FROM ({COUNTS}) GROUP BY n", tmp_path)
    marks = [frame for _, frame in sent(counts, mark_frame(1, 0, "1", NEVER)) if not frame.payload]
    assert [(frame.bucket, frame.kind, frame.part) for frame in marks] == [
        (0, FrameKind.MARK, "0:1"),
        (1, FrameKind.MARK, "0:1"),
    ]


def test_the_buckets_of_each_branch_are_parts_of_the_input(tmp_path: Path) -> None:
    *_, total = operators(f"SELECT n, count(*) AS m FROM ({COUNTS} UNION ALL {COUNTS}) GROUP BY n", tmp_path)
    (input,) = total.spec.inputs
    assert input.parts == ("0:0", "0:1", "1:0", "1:1")


def test_counters_pass_once_whoever_reads(tmp_path: Path) -> None:
    counts, *_ = operators(f"WITH c AS ({COUNTS}) SELECT a.n, b.k FROM c AS a JOIN c AS b ON a.n = b.k", tmp_path)
    assert len(counts.readings) == 2
    found = [to for to, frame in sent(counts, counter_frame(1, "counts.1", {})) if frame.kind is FrameKind.COUNTER]
    assert len(found) == 1


def test_in_a_task_frames_stay_in_their_bucket(tmp_path: Path) -> None:
    counts, total = operators(f"SELECT k, max(n) AS m FROM ({COUNTS}) GROUP BY k", tmp_path)
    (reading,) = counts.readings
    assert counts.beside == {reading.operator}
    assert total.spec.inputs[0].parts == ("0",)
    assert {frame.bucket for _, frame in sent(counts, mark_frame(1, 0, "1", 7))} == {1}


def test_a_row_of_another_bucket_ends_the_query_in_words(tmp_path: Path) -> None:
    counts, _ = operators(f"SELECT k, max(n) AS m FROM ({COUNTS}) GROUP BY k", tmp_path)
    numbers = pa.array([3, 4, 5, 6])
    keys = pa.table({field.name: numbers.cast(pa.string()).cast(field.type) for field in counts.spec.output})
    with pytest.raises(WatersmeetError, match=r"results of bucket 1 of .* belong in bucket 0"):
        list(counts.addressed(1, Outbox(counts.spec, 1, keys, ())))


def test_what_only_spark_can_compute_between_two_operators_is_refused(tmp_path: Path) -> None:
    repeated = "SELECT k, CAST(repeat('x', CAST(count(*) AS INT)) AS STRING) AS r FROM o GROUP BY k"
    with pytest.raises(UnsupportedError, match="can be computed by Spark alone") as raised:
        operators(f"SELECT r, count(*) AS m FROM ({repeated}) GROUP BY r", tmp_path)
    assert "REPEAT" in (raised.value.detail or "")


def test_what_a_query_computes_of_results_is_named_where_it_is_refused(tmp_path: Path) -> None:
    hours = "SELECT date_trunc('HOUR', ts) AS h, count(*) AS n FROM o GROUP BY date_trunc('HOUR', ts)"
    with pytest.raises(UnsupportedError, match="can be computed by Spark alone") as raised:
        operators(f"SELECT CAST(h AS DATE) AS d, max(n) AS m FROM ({hours}) GROUP BY CAST(h AS DATE)", tmp_path)
    assert "AS DATE)" in (raised.value.detail or "")


def test_results_have_no_order_of_arrival(tmp_path: Path) -> None:
    hours = "SELECT date_trunc('HOUR', ts) AS h, count(*) AS n FROM o GROUP BY date_trunc('HOUR', ts)"
    with pytest.raises(UnsupportedError) as raised:
        operators(f"SELECT h, n FROM ({hours}) ORDER BY h EMIT FINAL", tmp_path)
    assert raised.value.message == (
        "the results of subquery have no order of arrival in real time, by which ORDER BY puts what it does not tell"
        " apart"
    )
    assert "micro-batches take it" in (raised.value.hint or "")
