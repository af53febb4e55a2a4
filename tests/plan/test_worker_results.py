"""Results that workers turn into rows of the next operator's input, against how the harness does it, as Spark does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.pack import Packer
from watersmeet.engine.results import Reader, packed_results
from watersmeet.plan.worker_results import result_projection
from watersmeet.testing.harness import Harness, load_script
from watersmeet.testing.notation import read_cases
from watersmeet.testing.runner import run_case

CASES = read_cases(Path(__file__).parents[1] / "cases" / "whole_queries.wmt")


class _Compared(Harness):
    """Packs results in both ways, and compares what they carry; hashes differ, and so do the buckets."""

    compared = 0
    shares_tasks = False

    def _pack_results(self, number: int, sent: Mapping[int, Sequence[Frame]]) -> list[Frame]:
        found = super()._pack_results(number, sent)
        part, spec = self.plan.inputs[number], self._tasks.packs[number]
        by_worker: list[Frame] = []
        for place, branch in enumerate(part.branches):
            output = self._operators[branch.operator].output
            projection = result_projection(part, place, output, self._schemas[number])
            if projection is None:
                return found
            reader = Reader(projection, Packer(spec))
            by_worker += packed_results(sent[branch.operator], [reader], spec.buckets)
            by_worker += reader.packer.finish()
        hashes = part.hashes.keys()
        assert _rows(by_worker, hashes) == _rows(found, hashes)
        assert _frontiers(by_worker) == _frontiers(found)
        assert _others(by_worker) == _others(found)
        _Compared.compared += 1
        return found


def _rows(frames: Sequence[Frame], hashes: Collection[str]) -> list[str]:
    tables = [decode_table(frame.payload) for frame in frames if frame.kind is FrameKind.ROWS]
    rows = [
        row
        for table in tables
        for row in table.drop_columns([n for n in hashes if n in table.column_names]).to_pylist()
    ]
    return sorted(map(repr, rows))


def _frontiers(frames: Sequence[Frame]) -> set[tuple[str, int]]:
    return {(frame.part, frame.frontier) for frame in frames if frame.kind is FrameKind.MARK and not frame.payload}


def _others(frames: Sequence[Frame]) -> list[bytes]:
    kinds = (FrameKind.COUNTER, FrameKind.SIDE)
    return sorted(bytes(frame.payload) for frame in frames if frame.kind in kinds)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in CASES])
def test_a_worker_makes_the_same_rows(case: object) -> None:
    failure = run_case(case, partial(_Compared))  # type: ignore[arg-type]
    assert failure is None, failure.report


def test_most_results_need_no_jvm() -> None:
    """A SELECT list of columns, with a condition, over an aggregate whose group is the key of the next operator."""
    streams = "CREATE STREAM a (k STRING, x INT, ts BIGINT, WATERMARK FOR ts AS ts);"
    query = "SELECT l.k FROM (SELECT k, sum(x) + 1 AS s FROM a GROUP BY k) l JOIN a r ON l.k = r.k AND l.s > r.x;"
    harness = Harness(*load_script(streams + query))
    (part,) = (each for each in harness.plan.inputs if each.branches)
    number = harness.plan.inputs.index(part)
    output = harness._operators[part.branches[0].operator].output
    assert isinstance(output, pa.Schema)
    assert result_projection(part, 0, output, harness._schemas[number]) is not None
