"""The changes of one step as a sink takes them one by one: what cancels out is gone, retractions come first."""

from __future__ import annotations

from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import WEIGHT

_PLACE, _NET = "$place", "$net"


def settled(changes: pa.Table) -> pa.Table:
    """Return the rows whose weights do not cancel out, retractions before the rows that replace them.

    A row of weight 2 comes twice, with 1 each.  Rows are compared as GROUP BY does: NULL equals NULL, NaN equals NaN.
    Changes without retractions are returned as they are.
    """
    if WEIGHT not in changes.column_names or pc.min(changes[WEIGHT]).as_py() > 0:
        return changes
    places = _net_places(changes)
    sign = changes.schema.field(WEIGHT).type
    found = changes.take(pa.chunked_array([places[_PLACE].combine_chunks()]))
    repeated = pc.list_parent_indices(_as_lists(pc.abs(places[_NET]).to_pylist()))
    weights = pc.sign(places[_NET]).cast(sign)
    at = changes.column_names.index(WEIGHT)
    return found.set_column(at, changes.schema.field(WEIGHT), weights).take(repeated)


def _as_lists(lengths: list[int]) -> pa.Array:
    return pa.array([[None] * length for length in lengths], pa.list_(pa.null()))


def _net_places(changes: pa.Table) -> pa.Table:
    """The first place of each row that stays, and its weight, retractions first."""
    names = [f"c{number}" for number in range(changes.num_columns)]
    weight = names[changes.column_names.index(WEIGHT)]
    others = ", ".join(name for name in names if name != weight)
    numbered = changes.rename_columns(names).append_column(_PLACE, pa.array(range(changes.num_rows), pa.int64()))
    connection = _connection()
    connection.register("changes", numbered)
    try:
        return connection.sql(
            f"""
            SELECT min("{_PLACE}") AS "{_PLACE}", CAST(sum({weight}) AS BIGINT) AS "{_NET}"
            FROM changes GROUP BY {others} HAVING sum({weight}) <> 0 ORDER BY sign("{_NET}"), "{_PLACE}"
            """
        ).to_arrow_table()
    finally:
        connection.unregister("changes")


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})
