"""Late rows: split from those on time, counted, and kept as side output where the query asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ROWS, TIE, TIME
from watersmeet.engine.frames import side_rows
from watersmeet.engine.inbox import Inbox
from watersmeet.engine.pack import RAW_TEXT
from watersmeet.engine.scratch import scratch_connection
from watersmeet.engine.specs import InputSpec, OperatorSpec, RowEnd
from watersmeet.engine.ties import is_behind
from watersmeet.engine.time_texts import time_text
from watersmeet.kernels.api import FOREVER, NEVER, shift
from watersmeet.state.manifest import Manifest

LATE = "late"


@dataclass(frozen=True, slots=True)
class LateBound:
    """The time below which rows of an input are late, and that below which they correct results that did not wait.

    Rows of that time are late too if they come before ``tie`` in the declared order.
    """

    late_below: int
    reopens_below: int
    tie: bytes = b""


def late_bounds(spec: OperatorSpec, manifest: Manifest) -> list[LateBound]:
    """Return the bounds of each input.

    Call this before ``advance_frontiers``: a row is late by the frontier as it stood before the batch.
    """
    if spec.accepts_late and not manifest.sealed:
        return [LateBound(NEVER, NEVER)] * len(spec.inputs)
    return [_late_bound(spec, manifest, number) for number in range(len(spec.inputs))]


def _late_bound(spec: OperatorSpec, manifest: Manifest, number: int) -> LateBound:
    input, own = spec.inputs[number], manifest.own.get(number, NEVER)
    shared = manifest.frontier if input.holds_back else NEVER
    frontier = shared if input.holds_back and not input.late_by_own else max(shared, own)
    retention = None if input.retention is None else -input.retention
    late_below = shift(frontier, retention)
    tie = manifest.tie(number, late_below) if input.order else b""
    return LateBound(late_below, shift(frontier, input.lateness), tie)


def split_late_rows(
    spec: OperatorSpec, manifest: Manifest, inbox: Inbox, bounds: Sequence[LateBound]
) -> tuple[dict[int, pa.Table], list[pa.Table]]:
    """Return the kernel's inputs, which hold no late row, and the late rows of each input that keeps them.

    ``bounds`` are those of ``late_bounds``.  The manifest counts late, used and reopened rows of every source; copies
    are counted by the bucket of their key.
    """
    inputs: dict[int, pa.Table] = {}
    side: list[pa.Table] = []
    for number, input in enumerate(spec.inputs):
        bound = bounds[number]
        on_time, late = _split(inbox.rows[number], bound.late_below, input.until, bound.tie)
        if input.source is not None:
            manifest.count(f"{spec.name}.late.{input.source}", _count(late))
            manifest.count(f"{spec.name}.used.{input.source}", _count(on_time))
            if input.lateness or input.retention != 0:
                reopened = _split(on_time, bound.reopens_below)[1].num_rows
                manifest.count(f"{spec.name}.reopened.{input.source}", reopened)
            if late.num_rows and RAW_TEXT in late.column_names:
                side.append(side_rows(LATE, input.source, _reasons(late, bound, input), late[RAW_TEXT]))
        copies_on_time, _ = _split(inbox.copies[number], bound.late_below, tie=bound.tie)
        inputs[number] = pa.concat_tables(
            [each.select(input.schema.names).cast(input.schema) for each in (on_time, copies_on_time)]
        )
    return inputs, side


def _split(rows: pa.Table, bound: int, until: RowEnd | None = None, tie: bytes = b"") -> tuple[pa.Table, pa.Table]:
    """Return rows on time (``$t >= bound``, or NULL in a padded row, or until their end) and late rows.

    Rows of that time whose ``$tie`` is less than ``tie`` are late too.
    """
    if not rows.num_rows:
        return rows, rows
    late = pc.fill_null(pc.less(rows[TIME], pa.scalar(bound, pa.int64())), False)
    if tie and TIE in rows.column_names:
        late = pc.or_(late, is_behind(rows, bound, tie))
    late = late.combine_chunks()
    if not pc.any(late).as_py():
        return rows, rows.slice(0, 0)
    if until is not None and bound != FOREVER:
        ended = pc.less_equal(_ends(rows.filter(late), until), pa.scalar(bound, pa.int64()))
        late = pc.replace_with_mask(late, late, ended.combine_chunks())
    return rows.filter(pc.invert(late)), rows.filter(late)


def _count(rows: pa.Table) -> int:
    """Return how many rows of the source these are."""
    return rows.num_rows if ROWS not in rows.column_names else pc.sum(rows[ROWS]).as_py() or 0


def _ends(rows: pa.Table, until: RowEnd) -> pa.ChunkedArray:
    """Return the times from which on rows are late."""
    connection = scratch_connection()
    connection.register("late_rows", rows.select([until.column]))
    try:
        return connection.sql(f"SELECT {until.sql} AS end FROM late_rows").to_arrow_table()["end"]
    finally:
        connection.unregister("late_rows")


def _reasons(late: pa.Table, bound: LateBound, input: InputSpec) -> pa.Array:
    """Say of each row why it is late."""
    before = f"its event time is before {_bound_text(bound.late_below, input)}"
    behind = f"in the declared order ({input.order}) it comes before a row that is there"
    is_before = pc.less(late[TIME], pa.scalar(bound.late_below, pa.int64()))
    return pc.if_else(is_before, before, behind).combine_chunks()


def _bound_text(bound: int, input: InputSpec) -> str:
    """Describe the time below which rows are late, in the units of the event time's column."""
    if bound == FOREVER:
        return "the end of the stream, which has been declared"
    time = time_text(bound, input.scale)
    if input.retention:
        return f"{time}, and so more than table_retention behind the frontier"
    return f"the stream's own frontier {time}" if input.late_by_own else f"the frontier {time}"
