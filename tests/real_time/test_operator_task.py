"""The task of an operator: what comes to it, until the epoch ends."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from watersmeet.columns import WEIGHT
from watersmeet.engine.frames import FRAME_SCHEMA, FrameKind, bundled, from_record_batch, mark_frame, to_record_batch
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.specs import OperatorSpec
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.runtime.real_time import operator_task
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.operator_task import EPOCH, LiveOperatorTask, result_batches, result_column


def test_a_batch_without_rows_does_not_end_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle,) = bundled([mark_frame(3, 0, "", 7)], 5)
    task = LiveOperatorTask({}, "run", Epochs("", 0, 0, None), MemorySetting(1 << 30), None, {})

    taken = Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([], schema=FRAME_SCHEMA)
        assert taken.wait(20)  # else both would be taken together
        yield to_record_batch([bundle])

    class Noted(Arrivals[pa.RecordBatch]):
        def take(self, seconds: float | None = None) -> list[pa.RecordBatch]:
            found = super().take(seconds)
            taken.set()
            return found

    monkeypatch.setattr(operator_task, "Arrivals", Noted)
    sent = list(task.run(batches()))

    passed = [each for batch in sent for each in from_record_batch(batch) if each.kind is not FrameKind.FILLER]
    assert passed == [bundle]


def test_changes_of_one_step_that_cancel_out_are_not_sent() -> None:
    fields = [pa.field("id", pa.int32()), pa.field(WEIGHT, pa.int8())]
    spec = SimpleNamespace(outputs=(pa.schema(fields), pa.schema(fields)))

    def sent(changes: dict[int, list[tuple[int, int]]]) -> list[tuple[tuple[int, int] | None, ...]]:
        """The results in the columns of two queries."""
        rows = {
            query: pa.Table.from_pylist([{"id": id, WEIGHT: weight} for id, weight in each], pa.schema(fields))
            for query, each in changes.items()
        }
        batches = result_batches(Outbox(cast(OperatorSpec, spec), 0, rows, []), epoch=3)
        found = [row for each in batches for row in each.to_pylist() if row[EPOCH] == 3]
        columns = [[row[result_column(query)] for row in found] for query in range(2)]
        return list(zip(*([each and tuple(each.values()) for each in column] for column in columns), strict=True))

    assert sent({0: [(1, 1), (2, 1), (1, -1)]}) == [((2, 1), None)]
    assert sent({0: [(1, 1), (1, -1)]}) == []
    assert sent({1: [(3, 1)], 0: [(1, 1)]}) == [((1, 1), None), (None, (3, 1))]
