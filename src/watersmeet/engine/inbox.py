"""The inbox: the frames that one bucket receives in one batch, sorted by what they carry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.columns import ID
from watersmeet.engine.frames import Frame, FrameKind, decode_table, encode_table
from watersmeet.engine.pack_report import PackReport
from watersmeet.engine.routing import key_hashes
from watersmeet.engine.settle import settled
from watersmeet.engine.specs import OperatorSpec
from watersmeet.kernels.api import NEVER


@dataclass(slots=True)
class Inbox:
    """What arrived for one bucket in one batch; ``rows`` and ``copies`` hold a table for every input.

    No table has a row and its retraction: such changes have cancelled out.
    """

    rows: dict[int, pa.Table]
    copies: dict[int, pa.Table]  # rows of hot keys that another bucket counts
    marks: list[Frame]
    reports: list[tuple[int, PackReport]]  # (input, report of one packing task)
    controls: list[Frame]
    passing: list[Frame]  # side rows and counters of earlier operators, and bundles for later ones


def in_pieces(
    frames: Iterable[Frame],
    max_bytes: int | None,
    retracted_by: Mapping[int, Sequence[str]],
    taken_last: Collection[int] = (),
) -> Iterator[tuple[list[Frame], bool]]:
    """Divide the frames of a batch into those of several steps, each with rows of about ``max_bytes`` or one frame.

    Yields them with whether they are the last.  The last have all frames that are not rows: so frontiers advance when
    all rows are there.  ``retracted_by`` names the hash columns that a row shares with its retraction, by input: these
    two come in one step.  Where there are several, the rows of inputs that are ``taken_last`` come after all others.
    Without ``max_bytes``, there is one step.
    """
    if taken_last and max_bytes is not None:
        frames = list(frames)
        if sum(len(frame.payload) for frame in frames if frame.kind.has_rows) > max_bytes:
            first = [frame for frame in frames if frame.kind.has_rows and frame.input not in taken_last]
            yield from ((piece, False) for piece, _ in in_pieces(first, max_bytes, retracted_by) if piece)
            frames = [frame for frame in frames if not frame.kind.has_rows or frame.input in taken_last]
    if retracted_by and max_bytes is not None:
        yield from _by_key(frames, max_bytes, retracted_by)
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


def _by_key(
    frames: Iterable[Frame], max_bytes: int, retracted_by: Mapping[int, Sequence[str]]
) -> Iterator[tuple[list[Frame], bool]]:
    """Take all rows of a key in one step; frames of inputs without retractions stay whole."""
    rows: list[Frame] = []
    others: list[Frame] = []
    for frame in frames:
        (rows if frame.kind.has_rows else others).append(frame)
    needed = -(-sum(len(frame.payload) for frame in rows) // max_bytes)
    pieces = max(min(needed, len(rows)), 1)
    for piece in range(pieces):
        own = (_share(frame, place, piece, pieces, retracted_by) for place, frame in enumerate(rows))
        is_last = piece == pieces - 1
        yield [*(frame for frame in own if frame is not None), *(others if is_last else ())], is_last


def _share(
    frame: Frame, place: int, piece: int, pieces: int, retracted_by: Mapping[int, Sequence[str]]
) -> Frame | None:
    """Return the frame with its rows for one of several pieces; None if it has none."""
    if pieces == 1:
        return frame
    if frame.input not in retracted_by:
        return frame if place % pieces == piece else None
    table = decode_table(frame.payload)
    # all these keys have the same remainder by the number of buckets
    high_bits = key_hashes(table, retracted_by[frame.input]).view(np.uint64) >> np.uint64(32)
    own = table.filter(pa.array(high_bits % np.uint64(pieces) == piece))
    return replace(frame, frontier=own.num_rows, payload=encode_table(own)) if own.num_rows else None


def sort_inbox(spec: OperatorSpec, frames: Iterable[Frame]) -> Inbox:
    """Sort frames into an inbox; an input without frames gets an empty table."""
    rows: dict[int, list[pa.Table]] = {number: [] for number in range(len(spec.inputs))}
    copies: dict[int, list[pa.Table]] = {number: [] for number in rows}
    inbox = Inbox({}, {}, [], [], [], [])
    for frame in frames:
        match frame.kind:
            case FrameKind.ROWS:
                rows[frame.input].append(decode_table(frame.payload))
            case FrameKind.COPIES:
                copies[frame.input].append(decode_table(frame.payload))
            case FrameKind.MARK:
                inbox.marks.append(frame)
                if frame.payload and frame.frontier == NEVER:
                    inbox.reports.append((frame.input, PackReport.from_json(bytes(frame.payload))))
            case FrameKind.CONTROL:
                inbox.controls.append(frame)
            case FrameKind.SIDE | FrameKind.COUNTER | FrameKind.BUNDLE:
                inbox.passing.append(frame)
    for number, input in enumerate(spec.inputs):
        for tables, found in ((inbox.rows, rows[number]), (inbox.copies, copies[number])):
            arrived = pa.concat_tables(found) if found else input.schema.empty_table()
            tables[number] = settled(arrived) if ID in input.schema.names else arrived
    return inbox
