"""Rows of the side output at the end of a query: a batch that runs again replaces what it has written."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pyarrow as pa

from watersmeet.engine.frames import Frame, side_frames, side_rows
from watersmeet.engine.unpack import side_file_of, unpack


def late(bucket: int, texts: list[str]) -> list[Frame]:
    rows = side_rows("late", "l", pa.array(["why"] * len(texts)), pa.array(texts))
    return list(side_frames(rows, bucket=bucket))


def test_however_frames_are_cut_there_is_one_file(tmp_path: Path) -> None:
    parts = [late(4, ["a"]), late(2, ["b", "c"]), late(3, ["d"])]
    cuts = [[[*first, *second], third] for first, second, third in permutations(parts)]
    for batches in [*permutations(parts), *cuts]:
        assert list(unpack(batches, pa.schema([]), side_file_of(str(tmp_path), 7, 2))) == []
        (file,) = tmp_path.iterdir()
        assert file.name == "batch-7-2.jsonl"
        assert len(file.read_text().splitlines()) == 4


def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    assert list(unpack([late(1, ["a"])], pa.schema([]), None)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_has_no_side_rows_any_more_leaves_no_file(tmp_path: Path) -> None:
    """It runs again with other limits, say, and evicts fewer rows."""
    for task in (1, 2):
        list(unpack([late(task, ["a"])], pa.schema([]), side_file_of(str(tmp_path), 7, task)))
    for _ in range(2):
        assert list(unpack([], pa.schema([]), side_file_of(str(tmp_path), 7, 1))) == []
        assert [file.name for file in tmp_path.iterdir()] == ["batch-7-2.jsonl"]
