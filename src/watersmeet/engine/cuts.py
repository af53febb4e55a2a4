"""How the rows of a batch are divided where they are more than a step may take."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.engine.divided_keys import UNDIVIDED, Division, divided
from watersmeet.engine.frames import Frame, decode_table, encode_table
from watersmeet.engine.mail import Mail
from watersmeet.engine.row_hashes import hash_sql, of_rows
from watersmeet.kernels.row_bytes import table_bytes

#: Rows of so few bytes wait in memory.
_ALWAYS_HELD = 1 << 20
#: Rows with equal values that take no more stay together.
_NEVER_DIVIDED = 1 << 20
#: What rows count for (row_bytes.py) is less than so many bytes for each, and for each byte of their frames.
_MOST_A_ROW, _MOST_A_BYTE = 8 << 10, 8


class _Whole(NamedTuple):
    """The piece to which all rows of a frame belong."""

    piece: int


def in_pieces(
    frames: Iterable[Frame],
    max_bytes: int | None,
    cut_by: Mapping[int, Sequence[str]],
    taken_last: Collection[int] = (),
    *,
    divides: bool = False,
    alike: bool = False,
) -> Iterator[tuple[list[Frame], bool]]:
    """Divide the frames of a batch into those of several steps, each with rows of about ``max_bytes`` or one frame.

    Yields them with whether they are the last.  The last have all frames that are not bulk (``is_bulk``): so frontiers
    advance when all rows are there.  ``cut_by`` names columns, by input: rows with equal values of these, of whatever
    inputs, come in one step.  But rows of inputs that are ``taken_last`` come in later steps than all others, and
    those with equal values in one of these.  Without ``max_bytes``, there is one step.  Rows that wait for their step
    lie in a file if they are many.

    If it ``divides`` them, rows with equal values that alone are more than a step may take come in several
    (divided_keys.py).  If all attempts are ``alike``, the pieces follow from the rows of inputs in ``cut_by`` alone, in
    whatever frames they come.
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
    sizes = _sizes(first, last, max_bytes, alike=alike)
    cut = partial(_cut, max_bytes=max_bytes, cut_by=cut_by, divides=divides)
    if sizes is None:
        yield [*first.take(), *last.take(), *others], True
    elif len(last):
        yield from ((piece, False) for piece, _ in cut(first, sizes[0], []) if piece)
        yield from cut(last, sizes[1], others)
    else:
        yield from cut(first, sizes[0], others)


class _Size(NamedTuple):
    """How many bytes frames have, and into how many pieces they can be cut at most."""

    nbytes: int
    most_pieces: int


def _sizes(first: Mail, last: Mail, max_bytes: int, *, alike: bool) -> tuple[_Size, _Size] | None:
    """Return the sizes of frames; None if all of them fit in one step.

    If all attempts must be ``alike``, their rows count: frames have other bytes beside theirs.
    """
    rows, nbytes = first.rows + last.rows, first.nbytes + last.nbytes
    if alike and rows * _MOST_A_ROW + nbytes * _MOST_A_BYTE <= max_bytes:
        return None  # it takes time to measure
    sizes = (_of_rows(first), _of_rows(last)) if alike else (_of_frames(first), _of_frames(last))
    return None if sizes[0].nbytes + sizes[1].nbytes <= max_bytes else sizes


def _of_frames(frames: Mail) -> _Size:
    return _Size(frames.nbytes, len(frames))


def _of_rows(frames: Mail) -> _Size:
    nbytes, most_pieces = 0, frames.rows
    for frame in frames.read():
        if frame.kind.has_rows:
            nbytes += table_bytes(decode_table(frame.payload))
        else:
            nbytes, most_pieces = nbytes + len(frame.payload), most_pieces + 1
    return _Size(nbytes, most_pieces)


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


def _cut(
    rows: Mail,
    size: _Size,
    others: list[Frame],
    *,
    max_bytes: int,
    cut_by: Mapping[int, Sequence[str]],
    divides: bool,
) -> Iterator[tuple[list[Frame], bool]]:
    """Take rows with equal values in one step; frames that are not cut by any stay whole.

    The rows of each frame are put in the order of their pieces: a piece is then a slice of each frame.
    """
    if not cut_by:
        yield from _by_frames(chain(rows.take(), others), max_bytes)
        return
    if size.nbytes <= max_bytes or size.most_pieces <= 1:
        yield [*rows.take(), *others], True
        return
    division = divided(partial(_keyed, rows, cut_by), max(max_bytes, _NEVER_DIVIDED)) if divides else UNDIVIDED
    even = max(min(math.ceil(size.nbytes * (1 - division.share) / max_bytes), size.most_pieces), 1)
    ordered, starts = _by_piece(rows, even, division, cut_by)
    pieces = [each for each in range(even + division.pieces) if any(_has_rows(start, each) for start in starts)]
    if not pieces:
        yield others, True
    for piece in pieces:
        own = (_share(frame, start, piece) for frame, start in zip(ordered.read(), starts, strict=True))
        is_last = piece == pieces[-1]
        yield [*(frame for frame in own if frame is not None), *(others if is_last else ())], is_last


def _keyed(rows: Mail, cut_by: Mapping[int, Sequence[str]]) -> Iterator[tuple[pa.Table, Sequence[str]]]:
    """Yield the tables that are cut, with the columns by which they are."""
    for frame in rows.read():
        if (columns := _columns(frame, cut_by)) is not None:
            yield decode_table(frame.payload), columns


def _by_piece(
    rows: Mail, even: int, division: Division, cut_by: Mapping[int, Sequence[str]]
) -> tuple[Mail, list[np.ndarray | _Whole]]:
    """Return the frames, each with its rows in the order of their pieces; and of each where its pieces begin.

    The first ``even`` pieces are by hash, the others those of divided keys.
    """
    ordered, starts = Mail(_ALWAYS_HELD), list[np.ndarray | _Whole]()
    for number, frame in enumerate(rows.take()):
        if (columns := _columns(frame, cut_by)) is None:
            ordered.put(frame)
            starts.append(_Whole(number % even))
            continue
        table = decode_table(frame.payload)
        hashes = of_rows(table, hash=hash_sql(table, columns))["hash"]
        by_hash = (hashes % np.uint64(even)).astype(np.int64)
        of_division = division.numbers(table, hashes)
        numbers = np.where(of_division < 0, by_hash, even + of_division)
        order = np.argsort(numbers, kind="stable")
        ordered.put(replace(frame, payload=encode_table(table.take(order))))
        starts.append(np.searchsorted(numbers[order], np.arange(even + division.pieces + 1)))
    return ordered, starts


def _columns(frame: Frame, cut_by: Mapping[int, Sequence[str]]) -> Sequence[str] | None:
    """Return the columns by which the rows of a frame are cut; None if it stays whole."""
    return cut_by.get(frame.input) if frame.kind.has_rows else None


def _has_rows(starts: np.ndarray | _Whole, piece: int) -> bool:
    return starts.piece == piece if isinstance(starts, _Whole) else bool(starts[piece] < starts[piece + 1])


def _share(frame: Frame, starts: np.ndarray | _Whole, piece: int) -> Frame | None:
    """Return the frame with its rows for a piece; None if it has none."""
    if not _has_rows(starts, piece):
        return None
    if isinstance(starts, _Whole):
        return frame
    start, end = map(int, starts[piece : piece + 2])
    return replace(frame, frontier=end - start, payload=encode_table(decode_table(frame.payload)[start:end]))
