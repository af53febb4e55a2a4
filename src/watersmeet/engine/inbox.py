"""The inbox: the frames that one bucket receives in one batch, sorted by what they carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import ID
from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.pack_report import PackReport
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
