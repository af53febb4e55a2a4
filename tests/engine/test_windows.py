"""Windows computed in the worker, against their definition."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import ID
from watersmeet.engine.windows import WindowColumns, with_windows
from watersmeet.expressions.windows import Window, WindowBound, WindowKind


@st.composite
def _windows(draw: st.DrawFn) -> Window:
    kind = draw(st.sampled_from(WindowKind))
    step = draw(st.integers(1, 7))
    match kind:
        case WindowKind.TUMBLE:
            size = step
        case WindowKind.HOP:
            size = draw(st.integers(step, 20))
        case _:
            size = step * draw(st.integers(1, 5))
    return Window(kind, size, step, draw(st.integers(-9, 9)))


@given(_windows(), st.lists(st.none() | st.integers(-50, 50), max_size=20))
def test_a_row_is_there_once_for_each_of_its_windows(window: Window, times: list[int | None]) -> None:
    columns = WindowColumns(window, "t", {bound: bound.value for bound in WindowBound}, pa.int64(), 1, 1)
    schema = pa.schema([("t", pa.int64()), ("place", pa.int64())])
    rows = pa.table([pa.array(times, pa.int64()), pa.array(range(len(times)))], schema=schema)
    found = with_windows(rows, rows["t"], (columns,)).to_pylist()
    dated = [row for row in found if row["t"] is not None]
    assert sorted((row["place"], row["window_start"], row["window_end"]) for row in dated) == sorted(
        (place, start, end)
        for place, time in enumerate(times)
        if time is not None
        for start, end in _of_definition(window, time)
    )
    assert all(row["window_time"] == row["window_end"] - 1 for row in dated)
    assert sorted(row["place"] for row in found if row["t"] is None) == [i for i, t in enumerate(times) if t is None]


@given(_windows(), st.lists(st.integers(-50, 50), max_size=10))
def test_a_retraction_has_the_names_of_its_row_and_no_other(window: Window, times: list[int]) -> None:
    columns = WindowColumns(window, "t", {bound: bound.value for bound in WindowBound}, pa.int64(), 1, 1)
    ids = [f"n{number}" for number in range(len(times))]
    twice = pa.table({"t": pa.array(times * 2, pa.int64()), ID: pa.array(ids * 2, pa.string())})
    found = with_windows(twice, twice["t"], (columns,)).to_pylist()
    added, retracted = found[: len(found) // 2], found[len(found) // 2 :]
    assert added == retracted
    assert len({row[ID] for row in added}) == len(added)


def _of_definition(window: Window, time: int) -> list[tuple[int, int]]:
    """All windows near a time that hold it, from what their kind says."""
    near = range(-100, 101)
    starts = [window.offset + k * (window.step if window.kind is WindowKind.HOP else window.size) for k in near]
    ends = range(window.step, window.size + 1, window.step) if window.kind is WindowKind.CUMULATE else (window.size,)
    return [(start, start + end) for start in starts for end in ends if start <= time < start + end]
