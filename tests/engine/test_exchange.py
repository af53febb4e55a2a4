"""Frames between tasks: large payloads in files of the run's folder, or everything in Spark's rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.engine.frames import Frame, decode_table, mark_frame, row_frames, side_frames, side_rows
from watersmeet.errors import WatersmeetError
from watersmeet.runtime import exchange
from watersmeet.runtime.exchange import Exchange

ROWS = pa.table({"v": pa.array(range(1000), pa.int64())})


def frames() -> list[Frame]:
    return [*row_frames(ROWS, bucket=3, input=1), mark_frame(3, 1, "part 0", 17, b"{}")]


def test_a_large_payload_lies_in_a_file(tmp_path: Path) -> None:
    here = Exchange(str(tmp_path), min_bytes=100)
    sent = here.send(frames())
    assert sent.nbytes < 200
    (file,) = tmp_path.iterdir()
    rows, mark = here.receive(sent)
    assert decode_table(rows.payload) == ROWS
    assert rows.part == ""
    assert mark == frames()[1]
    file.unlink()
    assert decode_table(rows.payload) == ROWS  # received rows stay


def test_many_late_rows_lie_in_a_file(tmp_path: Path) -> None:
    late = side_rows("late", "l", pa.array(["why"] * 100), pa.array(["{}"] * 100))
    here = Exchange(str(tmp_path), min_bytes=100)
    sent = here.send(side_frames(late, bucket=3))
    assert sent.nbytes < 200
    (frame,) = here.receive(sent)
    assert decode_table(frame.payload) == late


@pytest.mark.parametrize("folder", [None, "here"])
def test_other_payloads_travel_with_the_frame(tmp_path: Path, folder: str | None) -> None:
    way = Exchange(None, 1) if folder is None else Exchange(str(tmp_path))
    rows, mark = way.receive(way.send(frames()))
    assert decode_table(rows.payload) == ROWS
    assert mark == frames()[1]
    assert list(tmp_path.iterdir()) == []


def test_files_stay_until_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Exchange(str(tmp_path), min_bytes=1)
    monkeypatch.setattr(exchange, "batch_id", lambda: 9)
    sent = here.send(frames())
    here.remove_old_files()
    assert len(list(here.receive(sent))) == 2
    monkeypatch.setattr(exchange, "batch_id", lambda: 10)
    with monkeypatch.context() as other:
        other.setattr(exchange, "_task_property", lambda name: "another run")
        here.remove_old_files()
    assert len(list(here.receive(sent))) == 2
    here.remove_old_files()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(WatersmeetError, match="rows that one task sent to another are gone"):
        list(here.receive(sent))
