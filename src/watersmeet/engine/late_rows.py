"""Late rows: split from those on time, counted, and kept as side output where the query asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.engine.frames import side_rows
from watersmeet.engine.inbox import Inbox
from watersmeet.engine.pack import RAW_TEXT
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.engine.time_texts import time_text
from watersmeet.kernels.api import FOREVER, NEVER, shift
from watersmeet.state.manifest import Manifest

LATE = "late"


@dataclass(frozen=True, slots=True)
class LateBound:
    """The time below which rows of an input are ``late``, and that below which no result has ``waited`` for them."""

    late: int
    waited: int


def late_bounds(spec: OperatorSpec, manifest: Manifest) -> list[LateBound]:
    """Return the bounds of each input.

    Call this before ``advance_frontiers``: a row is late by the frontier as it stood before the batch.
    """
    if spec.accepts_late and not manifest.sealed:
        return [LateBound(NEVER, NEVER)] * len(spec.inputs)
    return [_late_bound(input, manifest, manifest.own.get(number, NEVER)) for number, input in enumerate(spec.inputs)]


def _late_bound(input: InputSpec, manifest: Manifest, own: int) -> LateBound:
    operators = manifest.frontier if input.holds_back else NEVER
    frontier = operators if input.holds_back and not input.in_order else max(operators, own)
    retention = None if input.retention is None else -input.retention
    return LateBound(shift(frontier, retention), shift(frontier, input.lateness))


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
        bound = bounds[number].late
        on_time, late = _split(inbox.rows[number], bound)
        if input.source is not None:
            manifest.count(f"{spec.name}.late.{input.source}", late.num_rows)
            manifest.count(f"{spec.name}.used.{input.source}", on_time.num_rows)
            if input.lateness or input.retention != 0:
                reopened = _split(on_time, bounds[number].waited)[1].num_rows
                manifest.count(f"{spec.name}.reopened.{input.source}", reopened)
            if late.num_rows and RAW_TEXT in late.column_names:
                reason = f"its event time is before {_frontier_text(bound, input.scale)}"
                side.append(side_rows(LATE, input.source, pa.array([reason] * late.num_rows), late[RAW_TEXT]))
        copies_on_time, _ = _split(inbox.copies[number], bound)
        inputs[number] = pa.concat_tables(
            [each.select(input.schema.names).cast(input.schema) for each in (on_time, copies_on_time)]
        )
    return inputs, side


def _split(rows: pa.Table, bound: int) -> tuple[pa.Table, pa.Table]:
    """Return rows on time (``$t >= bound``, or NULL in a padded row) and late rows."""
    if not rows.num_rows:
        return rows, rows
    late = pc.fill_null(pc.less(rows[TIME], pa.scalar(bound, pa.int64())), False)
    if not pc.any(late).as_py():
        return rows, rows.slice(0, 0)
    return rows.filter(pc.invert(late)), rows.filter(late)


def _frontier_text(frontier: int, scale: int | None) -> str:
    """Describe a frontier in the units of the event time's column."""
    if frontier == FOREVER:
        return "the end of the stream, which has been declared"
    return f"the frontier {time_text(frontier, scale)}"
