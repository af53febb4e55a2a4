"""The task of an operator: what comes to it, until the epoch ends."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pytest

from watersmeet.engine.frames import FRAME_SCHEMA, FrameKind, bundled, from_record_batch, mark_frame, to_record_batch
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.runtime.real_time import operator_task
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.operator_task import LiveOperatorTask


def test_a_batch_without_rows_does_not_end_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle,) = bundled([mark_frame(3, 0, "", 7)], 5)
    task = LiveOperatorTask({}, "run", Epochs("", 0, 0, None), MemorySetting(1 << 30), None)

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
