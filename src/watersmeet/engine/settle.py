"""The changes of one step as a sink takes them one by one: what cancels out is gone, retractions come first."""

from __future__ import annotations

from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import WEIGHT

_PLACE, _NET = "$place", "$net"


def settled(changes: pa.Table) -> pa.Table:
    """Return the rows whose weights do not cancel out, retractions before the rows that replace them.

    A row of weight 2 comes twice, with 1 each.  Rows are compared as GROUP BY does: NULL equals NULL, NaN equals NaN.
    Changes without retractions are returned as they are.
    """
    if WEIGHT not in changes.column_names or not pc.any(pc.less(changes[WEIGHT], 0)).as_py():
        return changes
    net = _net_places(changes)
    weights = net[_NET].to_numpy()
    places = np.repeat(net[_PLACE].to_numpy(), np.abs(weights))
    at, field = changes.column_names.index(WEIGHT), changes.schema.field(WEIGHT)
    signs = pa.array(np.repeat(np.sign(weights), np.abs(weights))).cast(field.type)
    return changes.take(pa.array(places, pa.int64())).set_column(at, field, signs)


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
