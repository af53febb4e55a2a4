"""How the rows of a batch are divided where they are more than a step may take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.columns import ID
from watersmeet.engine.frames import Frame, decode_table, encode_table
from watersmeet.engine.scratch import scratch_connection
from watersmeet.kernels.api import quote


def in_pieces(
    frames: Iterable[Frame],
    max_bytes: int | None,
    cut_by: Mapping[int, Sequence[str]],
    taken_last: Collection[int] = (),
) -> Iterator[tuple[list[Frame], bool]]:
    """Divide the frames of a batch into those of several steps, each with rows of about ``max_bytes`` or one frame.

    Yields them with whether they are the last.  The last have all frames that are not rows: so frontiers advance when
    all rows are there.  ``cut_by`` names columns, by input: rows with equal values of these come in one step, also
    those of several inputs.  Rows of inputs that are ``taken_last`` come in later steps than all others.  Without
    ``max_bytes``, there is one step.
    """
    if taken_last and max_bytes is not None:
        frames = list(frames)
        if sum(len(frame.payload) for frame in frames if frame.kind.has_rows) > max_bytes:
            first = [frame for frame in frames if frame.kind.has_rows and frame.input not in taken_last]
            yield from ((piece, False) for piece, _ in in_pieces(first, max_bytes, cut_by) if piece)
            frames = [frame for frame in frames if not frame.kind.has_rows or frame.input in taken_last]
    if cut_by and max_bytes is not None:
        yield from _by_values(frames, max_bytes, cut_by)
    else:
        yield from _by_frames(frames, max_bytes)


def _by_frames(frames: Iterable[Frame], max_bytes: int | None) -> Iterator[tuple[list[Frame], bool]]:
    rows: list[Frame] = []
    others: list[Frame] = []
    held = 0
    for frame in frames:
        if not frame.kind.has_rows:
            others.append(frame)
            continue
        if rows and max_bytes is not None and held + len(frame.payload) > max_bytes:
            yield rows, False
            rows, held = [], 0
        rows.append(frame)
        held += len(frame.payload)
    yield [*rows, *others], True


def _by_values(
    frames: Iterable[Frame], max_bytes: int, cut_by: Mapping[int, Sequence[str]]
) -> Iterator[tuple[list[Frame], bool]]:
    """Take rows with equal values in one step; frames of inputs that are not cut by any stay whole."""
    rows: list[Frame] = []
    others: list[Frame] = []
    for frame in frames:
        (rows if frame.kind.has_rows else others).append(frame)
    needed = -(-sum(len(frame.payload) for frame in rows) // max_bytes)
    pieces = max(min(needed, len(rows)), 1)
    if pieces == 1:
        yield [*rows, *others], True
        return
    numbers = [_piece_numbers(frame, place, pieces, cut_by.get(frame.input)) for place, frame in enumerate(rows)]
    for piece in range(pieces):
        own = (_share(frame, of_rows, piece) for frame, of_rows in zip(rows, numbers, strict=True))
        is_last = piece == pieces - 1
        yield [*(frame for frame in own if frame is not None), *(others if is_last else ())], is_last


def _piece_numbers(frame: Frame, place: int, pieces: int, cut_by: Sequence[str] | None) -> np.ndarray | int:
    """Return in which piece each row of a frame comes, or all of its rows."""
    if cut_by is None:
        return place % pieces
    return (_hashes(decode_table(frame.payload), cut_by) % np.uint64(pieces)).astype(np.uint32)


def _share(frame: Frame, numbers: np.ndarray | int, piece: int) -> Frame | None:
    """Return the frame with its rows for a piece; None if it has none."""
    if isinstance(numbers, int):
        return frame if numbers == piece else None
    own = decode_table(frame.payload).filter(pa.array(numbers == piece))
    return replace(frame, frontier=own.num_rows, payload=encode_table(own)) if own.num_rows else None


def _hashes(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """Return DuckDB's hash of some columns.

    Values of one type that its joins take for equal have equal hashes; the planner gives both sides of a key one type.
    A row whose ``$id`` is NULL is never retracted, and has a hash of its own.
    """
    names = ", ".join(map(quote, columns))
    hashed = f"hash({names})"
    if tuple(columns) == (ID,):
        hashed = f"CASE WHEN {names} IS NULL THEN hash(row_number() OVER ()) ELSE {hashed} END"
    connection = scratch_connection()
    connection.register("rows", table.select(list(columns)))
    try:
        found: np.ndarray = connection.sql(f"SELECT {hashed} AS h FROM rows").to_arrow_table()["h"].to_numpy()
    finally:
        connection.unregister("rows")
    return found
