"""Further terms of a declared order: which of two rows comes first that are equal in its first one.

Rows carry them as ``$tie``: bytes that compare as the terms do, one after the other.  Rows are in order of their times;
among those of one time, they are in order of these bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIE, TIME
from watersmeet.engine.scratch import scratch_connection
from watersmeet.kernels.api import quote


def with_ties(rows: pa.Table, terms: Sequence[tuple[str, bool]]) -> pa.Table:
    """Append ``$tie``, made of columns, each of which may descend; NULL comes first, or last where it descends."""
    keys = ", ".join(
        f"{quote(name)}, '{'DESC NULLS LAST' if descending else 'ASC NULLS FIRST'}'" for name, descending in terms
    )
    connection = scratch_connection()
    connection.register("tied_rows", rows.select([name for name, _ in terms]))
    try:
        # with a text among its values, DuckDB makes bytes of them, and never a number
        sql = f"SELECT create_sort_key({keys}, '', 'ASC NULLS FIRST') AS tie FROM tied_rows"
        ties = connection.sql(sql).to_arrow_table()["tie"]
    finally:
        connection.unregister("tied_rows")
    return rows.append_column(TIE, ties.cast(pa.binary()))


def last_tie(rows: pa.Table, time: int) -> bytes:
    """Return the last ``$tie`` of the rows of that time; empty if there are none, or if rows carry none."""
    if TIE not in rows.column_names:
        return b""
    of_time = rows[TIE].filter(pc.equal(rows[TIME], pa.scalar(time, pa.int64())))
    return pc.max(of_time).as_py() or b""


def is_behind(rows: pa.Table, time: int, tie: bytes) -> pa.ChunkedArray:
    """Return a mask of the rows of that time that come before this ``$tie``."""
    of_time = pc.fill_null(pc.equal(rows[TIME], pa.scalar(time, pa.int64())), False)
    return pc.and_(of_time, pc.less(rows[TIE], pa.scalar(tie, pa.binary())))
