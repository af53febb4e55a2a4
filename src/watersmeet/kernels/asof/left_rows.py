"""New left rows of a join as of a time: numbered, and dated by the time of the version that they ask for.

Their ``$t`` is then that time.  What asks for an older version than is kept matches nothing, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, Side, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.asof.match import Asked, AsofMatch
from watersmeet.kernels.homes import ByKey, Everywhere, Home
from watersmeet.kernels.match import clamped, number_rows

#: The relation with the one time that all left rows ask for, if it is fixed.
_FIXED = "asked"
_TIME = "$asked"


def homes_of_versions() -> dict[str, Home]:
    """Where the rows of the right side belong; the time that all left rows ask for is known everywhere."""
    return {"right": ByKey(Side.RIGHT.index), "settled": ByKey(Side.RIGHT.index), _FIXED: Everywhere()}


def arriving(
    match: AsofMatch,
    state: StateView,
    inputs: Mapping[int, pa.Table],
    frontiers: StepFrontiers,
    first_rid: int,
    result: StepResult,
) -> pa.Table:
    """Return the new left rows as they are joined and stored; count those that ask for too old a version."""
    rows = number_rows(inputs[Side.LEFT.index], first_rid)
    asked = match.times.asked
    if asked is None:
        return rows
    rows = _dated(asked, rows, state)
    oldest = NEVER if asked.fixed else match.times.left_asks_from(frontiers.before)
    is_old = pc.fill_null(pc.less(rows[TIME], pa.scalar(oldest, pa.int64())), False)
    if match.times.kept is not None:
        result.counters[asked.too_old] = pc.sum(is_old).as_py() or 0
    place = rows.schema.get_field_index(TIME)
    return rows.set_column(place, rows.schema.field(place), pc.if_else(is_old, pa.scalar(None, pa.int64()), rows[TIME]))


def _dated(asked: Asked, rows: pa.Table, state: StateView) -> pa.Table:
    event_time = "" if asked.event_time is None else f", {quote(TIME)} AS {quote(asked.event_time)}"
    return state.query(
        f"SELECT * EXCLUDE ({quote(_TIME)}) REPLACE ({clamped(quote(_TIME))} AS {quote(TIME)}){event_time}"
        f" FROM (SELECT *, {asked.time} AS {quote(_TIME)} FROM {state.register(rows)})"
    )


def right_bounds(
    match: AsofMatch, state: StateView, left: pa.Table, frontier: int, result: StepResult
) -> tuple[int, int]:
    """Return the least time of a right row that may still come or be asked for, and the greatest that may be asked for.

    Rows below the first no longer change, and those above the second are of no use.  A fixed time is not known before
    the first left row, and is stored then.
    """
    low = match.times.left_asks_from(frontier)
    if match.times.asked is None or not match.times.asked.fixed:
        return low, FOREVER
    known = state.scan(_FIXED)
    if known is not None:
        # several buckets may have become one, each with the same time
        ((fixed,),) = state.connection.execute(f"SELECT max({quote(TIME)}) FROM {known}").fetchall()
    elif (fixed := pc.min(left[TIME]).as_py()) is not None:
        result.store[_FIXED] = pa.table({TIME: pa.array([fixed], pa.int64())})
    return (NEVER, FOREVER) if fixed is None else (min(low, fixed + 1), fixed)
