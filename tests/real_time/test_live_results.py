"""What a bucket sends on in real time to the operators that read its results."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kernels.test_streamed_results import stream_all
from tests.real_time.epoch_harness import EpochHarness
from watersmeet.engine.frames import Frame, FrameKind, counter_frame, decode_table, mark_frame
from watersmeet.engine.live_results import LiveOperator
from watersmeet.engine.outbox import Outbox
from watersmeet.errors import WatersmeetError
from watersmeet.kernels.api import NEVER
from watersmeet.testing.harness import StepInput, load_script

STREAM = "CREATE STREAM o (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);"
COUNTS = "SELECT k, count(*) AS n FROM o GROUP BY k"


def operators(query: str, folder: Path) -> list[LiveOperator]:
    """The operators of a query over ``STREAM``, in two buckets."""
    return list(EpochHarness(*load_script(STREAM + query), folder)._live)


def sent(operator: LiveOperator, *frames: Frame) -> list[tuple[int, Frame]]:
    """What bucket 1 of an operator without results sends on, with the operators that it is for."""
    outbox = Outbox(operator.spec, 1, {}, frames)
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
        list(counts.addressed(1, Outbox(counts.spec, 1, {0: keys}, ())))


REPEATED = "SELECT k, CAST(repeat('x', CAST(count(*) AS INT)) AS STRING) AS r FROM o GROUP BY k"


def test_spark_is_asked_for_what_only_it_can_compute(tmp_path: Path) -> None:
    counts, total = operators(f"SELECT r, count(*) AS m FROM ({REPEATED}) GROUP BY r", tmp_path)
    assert not counts.is_last
    assert total.spec.inputs[0].parts == ("0:0", "0:1")
    (reading,) = counts.by_spark
    rows = pa.table({field.name: pa.array([3, 4]).cast(pa.string()).cast(field.type) for field in counts.spec.output})
    found = list(counts.asked(1, Outbox(counts.spec, 1, {0: rows}, [mark_frame(1, 0, "1", 7)])))
    assert all(map(reading.takes, found))
    of_rows, end = found
    assert decode_table(of_rows.payload) == rows
    assert (end.bucket, end.frontier, len(end.payload)) == (1, 7, 0)
    marks = [frame for frame in reading.packed(None, end) if not frame.payload]
    assert [(frame.bucket, frame.part, frame.frontier) for frame in marks] == [(0, "0:1", 7), (1, "0:1", 7)]


def test_counters_pass_once_where_spark_is_asked(tmp_path: Path) -> None:
    counts, _ = operators(f"SELECT r, count(*) AS m FROM ({REPEATED}) GROUP BY r", tmp_path)
    assert [frame.kind for _, frame in sent(counts, counter_frame(1, "counts.1", {}))] == [FrameKind.COUNTER]
    outbox = Outbox(counts.spec, 1, {}, [counter_frame(1, "counts.1", {})])
    assert list(counts.asked(1, outbox)) == []  # there are neither rows nor a frontier


@pytest.mark.parametrize(("kind", "is_whole"), [("JOIN", False), ("LEFT JOIN", True)])
def test_results_that_are_never_retracted_go_on_as_they_are_made(
    kind: str, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_all(monkeypatch)
    script = (
        "CREATE STREAM a (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
        "CREATE STREAM b (k INT, w INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
        f"SELECT v, w FROM a {kind} b ON a.k = b.k EMIT CHANGELOG"
    )
    sizes: list[int] = []

    class Noted(EpochHarness):
        def _taken_by(self, operator: LiveOperator, bucket: int, frames: list[Frame]) -> Iterator[Outbox]:
            for outbox in super()._taken_by(operator, bucket, frames):
                sizes.extend(rows.num_rows for rows in outbox.changes.values() if rows.num_rows)
                yield outbox

    harness = Noted(*load_script(script), tmp_path)
    rows = StepInput([(1, number, 7) for number in range(200)])
    outcome = harness.step({"a": rows, "b": rows})
    assert {row for _, row in outcome.changes} == set(product(range(200), range(200)))
    assert len(outcome.changes) == sum(sizes) == 40_000
    assert (len(sizes) == 1) is is_whole
    assert is_whole or len(sizes) > 10
