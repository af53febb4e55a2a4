"""Hashes and sizes of the rows of a table, as DuckDB computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import CARRIED_SEQUENCE, ID
from watersmeet.engine.scratch import scratch_connection
from watersmeet.kernels.api import quote
from watersmeet.state.statements import fetched


def hash_sql(table: pa.Table, columns: Sequence[str]) -> str:
    """Return SQL for DuckDB's hash of some columns of a table's rows.

    Values of one type that its joins take for equal have equal hashes; the planner gives both sides of a key one type.
    Rows that lack a value, as padded ones do, may be very many: where rows have an ``$id``, theirs is hashed, by which
    they are retracted.  A row whose ``$id`` is NULL never is, and has a hash of its own.  Without columns, all rows
    have one hash.
    """
    if not columns:
        return "CAST(0 AS UBIGINT)"
    names = list(map(quote, columns))
    hashed = f"hash({', '.join(names)})"
    if ID not in table.column_names:
        return hashed
    missing = " OR ".join(f"{name} IS NULL" for name in names) if ID not in columns else "TRUE"
    of_row = f"CASE WHEN {quote(ID)} IS NULL THEN hash(row_number() OVER ()) ELSE hash({quote(ID)}) END"
    return f"CASE WHEN {missing} THEN {of_row} ELSE {hashed} END"


def of_rows(table: pa.Table, **columns: str) -> dict[str, np.ndarray]:
    """Return the values of SQL expressions for each row, none of them NULL."""
    items = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    connection = scratch_connection()
    connection.register("rows", table)
    try:
        found = fetched(connection, f"SELECT {items} FROM rows")
    finally:
        connection.unregister("rows")
    return {name: found[name].to_numpy() for name in columns}


def of_values(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that every attempt at a batch finds alike: another may number the rows of a source anew."""
    return tuple(name for name in names if not name.endswith(CARRIED_SEQUENCE))


def in_one_order(rows: pa.Table) -> pa.Table:
    """Return rows in an order that follows from their values alone; rows that could change places are equal.

    Of equal rows of a source, the first ones come first.
    """
    if rows.num_rows < 2:
        return rows
    hashes = of_rows(rows, hash=f"hash({', '.join(map(quote, of_values(rows.column_names)))})")["hash"]
    terms = {"hash": pa.array(hashes)}
    terms |= {name: rows[name] for name in rows.column_names if name.endswith(CARRIED_SEQUENCE)}
    return rows.take(pc.sort_indices(pa.table(terms), [(name, "ascending") for name in terms]))
