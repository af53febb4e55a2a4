"""How the rows of a batch are divided where they are more than a step may take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.columns import ID
from watersmeet.engine.frames import Frame, decode_table, encode_table
from watersmeet.engine.mail import Mail
from watersmeet.engine.scratch import scratch_connection
from watersmeet.kernels.api import quote

#: Rows of so few bytes wait in memory.
_ALWAYS_HELD = 1 << 20


class _Whole(NamedTuple):
    """The piece to which all rows of a frame belong."""

    piece: int


def in_pieces(
    frames: Iterable[Frame],
    max_bytes: int | None,
    cut_by: Mapping[int, Sequence[str]],
    taken_last: Collection[int] = (),
) -> Iterator[tuple[list[Frame], bool]]:
    """Divide the frames of a batch into those of several steps, each with rows of about ``max_bytes`` or one frame.

    Yields them with whether they are the last.  The last have all frames that are not bulk (``is_bulk``): so frontiers
    advance when all rows are there.  ``cut_by`` names columns, by input: rows with equal values of these, of whatever
    inputs, come in one step.  But rows of inputs that are ``taken_last`` come in later steps than all others, and
    those with equal values in one of these.  Without ``max_bytes``, there is one step.  Rows that wait for their step
    lie in a file if they are many.
    """
    if max_bytes is None or not (cut_by or taken_last):
        yield from _by_frames(frames, max_bytes)
        return
    held = max(max_bytes // 2, _ALWAYS_HELD)
    first, last, others = Mail(held), Mail(held), list[Frame]()
    for frame in frames:
        if not frame.kind.is_bulk:
            others.append(frame)
        elif frame.kind.has_rows and frame.input in taken_last:
            last.put(frame)
        else:
            first.put(frame)
    if first.nbytes + last.nbytes <= max_bytes:
        yield [*first.take(), *last.take(), *others], True
    elif last.nbytes:
        yield from ((piece, False) for piece, _ in _cut(first, [], max_bytes, cut_by) if piece)
        yield from _cut(last, others, max_bytes, cut_by)
    else:
        yield from _cut(first, others, max_bytes, cut_by)


def _cut(
    rows: Mail, others: list[Frame], max_bytes: int, cut_by: Mapping[int, Sequence[str]]
) -> Iterator[tuple[list[Frame], bool]]:
    if cut_by:
        return _by_values(rows, others, max_bytes, cut_by)
    return _by_frames(chain(rows.take(), others), max_bytes)


def _by_frames(frames: Iterable[Frame], max_bytes: int | None) -> Iterator[tuple[list[Frame], bool]]:
    rows: list[Frame] = []
    others: list[Frame] = []
    held = 0
    for frame in frames:
        if not frame.kind.is_bulk:
            others.append(frame)
            continue
        if rows and max_bytes is not None and held + len(frame.payload) > max_bytes:
            yield rows, False
            rows, held = [], 0
        rows.append(frame)
        held += len(frame.payload)
    yield [*rows, *others], True


def _by_values(
    rows: Mail, others: list[Frame], max_bytes: int, cut_by: Mapping[int, Sequence[str]]
) -> Iterator[tuple[list[Frame], bool]]:
    """Take rows with equal values in one step; frames that are not cut by any stay whole.

    The rows of each frame are put in the order of their pieces: a piece is then a slice of each frame.
    """
    pieces = max(min(-(-rows.nbytes // max_bytes), len(rows)), 1)
    if pieces == 1:
        yield [*rows.take(), *others], True
        return
    ordered, starts = _by_piece(rows, pieces, cut_by)
    for piece in range(pieces):
        own = (_share(frame, start, piece) for frame, start in zip(ordered.read(), starts, strict=True))
        is_last = piece == pieces - 1
        yield [*(frame for frame in own if frame is not None), *(others if is_last else ())], is_last


def _by_piece(rows: Mail, pieces: int, cut_by: Mapping[int, Sequence[str]]) -> tuple[Mail, list[np.ndarray | _Whole]]:
    """Return the frames, each with its rows in the order of their pieces; and of each where its pieces begin."""
    ordered, starts = Mail(_ALWAYS_HELD), list[np.ndarray | _Whole]()
    for number, frame in enumerate(rows.take()):
        columns = cut_by.get(frame.input) if frame.kind.has_rows else None
        in_order, start = (frame, _Whole(number % pieces)) if columns is None else _in_order(frame, columns, pieces)
        ordered.put(in_order)
        starts.append(start)
    return ordered, starts


def _in_order(frame: Frame, columns: Sequence[str], pieces: int) -> tuple[Frame, np.ndarray]:
    """Return a frame with its rows in the order of their pieces; and where each piece begins, and the last ends."""
    table = decode_table(frame.payload)
    numbers = (_hashes(table, columns) % np.uint64(pieces)).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(pieces + 1))
    return replace(frame, payload=encode_table(table.take(order))), starts


def _share(frame: Frame, starts: np.ndarray | _Whole, piece: int) -> Frame | None:
    """Return the frame with its rows for a piece; None if it has none."""
    if isinstance(starts, _Whole):
        return frame if starts.piece == piece else None
    start, end = map(int, starts[piece : piece + 2])
    if start == end:
        return None
    return replace(frame, frontier=end - start, payload=encode_table(decode_table(frame.payload)[start:end]))


def _hashes(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """Return DuckDB's hash of some columns.

    Values of one type that its joins take for equal have equal hashes; the planner gives both sides of a key one type.
    Rows that lack a value, as padded ones do, may be very many: where rows have an ``$id``, theirs is hashed, by which
    they are retracted.  A row whose ``$id`` is NULL never is, and has a hash of its own.
    """
    names, known = list(map(quote, columns)), [ID] if ID in table.column_names else []
    hashed = f"hash({', '.join(names)})"
    if known:
        missing = " OR ".join(f"{name} IS NULL" for name in names) if ID not in columns else "TRUE"
        of_row = f"CASE WHEN {quote(ID)} IS NULL THEN hash(row_number() OVER ()) ELSE hash({quote(ID)}) END"
        hashed = f"CASE WHEN {missing} THEN {of_row} ELSE {hashed} END"
    connection = scratch_connection()
    connection.register("rows", table.select(list(dict.fromkeys((*columns, *known)))))
    try:
        found: np.ndarray = connection.sql(f"SELECT {hashed} AS h FROM rows").to_arrow_table()["h"].to_numpy()
    finally:
        connection.unregister("rows")
    return found
