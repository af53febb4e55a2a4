"""Net changes: what cancels out is gone, and retractions come first.

A sink takes changes one by one, so those of a step go to it in this form.  A step of an operator must not get a row
together with its retraction, since a retraction is looked up in the state; yet both may have arrived since its last
step, if the operator before it takes more steps.
"""

from __future__ import annotations

from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID, WEIGHT

_PLACE, _NET = "$place", "$net"


def settled(changes: pa.Table) -> pa.Table:
    """Return the rows whose weights do not cancel out, retractions before the rows that replace them.

    A row of weight 2 comes twice, with 1 each.  Where rows have an ``$id``, they are equal if it is, and one without is
    never retracted and equals none; otherwise they are compared as GROUP BY does: NULL equals NULL, NaN equals NaN.
    Changes that cannot cancel out are returned as they are.
    """
    if WEIGHT not in changes.column_names or not _may_cancel_out(changes):
        return changes
    net = _net_places(changes)
    weights = net[_NET].to_numpy()
    places = np.repeat(net[_PLACE].to_numpy(), np.abs(weights))
    at, field = changes.column_names.index(WEIGHT), changes.schema.field(WEIGHT)
    signs = pa.array(np.repeat(np.sign(weights), np.abs(weights))).cast(field.type)
    return changes.take(pa.array(places, pa.int64())).set_column(at, field, signs)


def _may_cancel_out(changes: pa.Table) -> bool:
    is_retraction = pc.less(changes[WEIGHT], 0)
    if ID not in changes.column_names:
        return bool(pc.any(is_retraction).as_py())
    retracted, added = (changes[ID].filter(each) for each in (is_retraction, pc.invert(is_retraction)))
    return bool(pc.any(pc.is_in(added, value_set=retracted)).as_py())


def _net_places(changes: pa.Table) -> pa.Table:
    """The first place of each row that stays, and its weight, retractions first."""
    names = [f"c{number}" for number in range(changes.num_columns)]
    weight = names[changes.column_names.index(WEIGHT)]
    if ID in changes.column_names:
        id = names[changes.column_names.index(ID)]
        others = f'{id}, CASE WHEN {id} IS NULL THEN "{_PLACE}" END'
    else:
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
