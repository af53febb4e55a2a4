"""The windows of rows, computed in the worker: the same as runtime/source_columns.py has Spark compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID
from watersmeet.expressions.windows import Window, WindowBound, WindowKind


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The bounds of one window as columns: their names, their type, and the units of ``$t`` in one unit of it.

    The window is over the column ``time``, which all windows of an input are over.  ``last`` is how far ``window_time``
    lies before the end of a window, in units of ``$t``.
    """

    window: Window
    time: str
    names: Mapping[WindowBound, str]
    type: pa.DataType
    scale: int
    last: int


def with_windows(rows: pa.Table, times: pa.ChunkedArray, windows: tuple[WindowColumns, ...]) -> pa.Table:
    """Return the rows, once for each of their windows, with the columns of these; ``times`` are internal times.

    A row without a time is there once, without a window.
    """
    for each in windows:
        places, start, end = _bounds(times, each.window)
        if places is not None:
            rows, times = rows.take(pa.array(places)), times.take(pa.array(places))
        missing = times.is_null().to_numpy(zero_copy_only=False) if times.null_count else None
        if places is not None and ID in rows.column_names:  # a retraction has the names that its rows had
            named = pc.binary_join_element_wise(
                rows[ID], pa.array(end, pa.int64(), mask=missing).cast(pa.string()), ":"
            )
            rows = rows.set_column(rows.column_names.index(ID), ID, named)
        bounds = {WindowBound.START: start, WindowBound.END: end, WindowBound.TIME: end - each.last}
        for bound, values in bounds.items():
            column = pa.array(values // each.scale, pa.int64(), mask=missing)
            rows = rows.append_column(each.names[bound], column.cast(each.type))
    return rows


def _bounds(times: pa.ChunkedArray, window: Window) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Return the places of the rows to repeat (None: each once), and the starts and ends of their windows."""
    t = pc.fill_null(times, 0).to_numpy()
    size, step = window.size, window.step
    if window.kind is WindowKind.TUMBLE:
        start = t - (t - window.offset) % size
        return None, start, start + size
    if window.kind is WindowKind.HOP:
        last = t - (t - window.offset) % step
        places, within = _repeated((last - t + size - 1) // step + 1, times)
        start = last[places] - within * step
        return places, start, start + size
    begin = t - (t - window.offset) % size
    first = begin + ((t - begin) // step + 1) * step
    places, within = _repeated((begin + size - first) // step + 1, times)
    return places, begin[places], first[places] + within * step


def _repeated(counts: np.ndarray, times: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of rows that are there so many times, and the number of each among those of its row."""
    if times.null_count:
        counts = np.where(times.is_null().to_numpy(zero_copy_only=False), 1, counts)
    places = np.repeat(np.arange(len(counts)), counts)
    return places, np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
