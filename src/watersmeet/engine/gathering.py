"""Gathering: the rows of a group that one task packs become one row, with what an aggregate makes of them.

So little of a window's rows travels, and a window with many rows is not the work of one core alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import ROWS, TIME
from watersmeet.engine.evaluation import EVALUATION_ERRORS, cannot_evaluate
from watersmeet.engine.scratch import scratch_connection
from watersmeet.kernels.api import quote


@dataclass(frozen=True, slots=True)
class Gathering:
    """The columns of gathered rows: all SQL is DuckDB's, over the columns of rows as they are packed.

    - ``keys``: by which rows are gathered.
    - ``figures``: functions over a group's rows.
    - ``shared``: columns of the rows that are equal in a group.

    Keys and figures are (name, SQL, type).  A gathered row has the newest ``$t``, and how many rows it stands for.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    figures: tuple[tuple[str, str, pa.DataType], ...]
    shared: tuple[str, ...]

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of gathered rows."""
        made = [pa.field(name, kind) for name, _, kind in (*self.keys, *self.figures)]
        kept = [rows.field(name) for name in self.shared]
        return pa.schema([pa.field(TIME, pa.int64()), *made, *kept, pa.field(ROWS, pa.int64())])


def gathered(rows: pa.Table, gathering: Gathering, hashes: tuple[str, ...], operator: str) -> pa.Table:
    """Return a row for each group of the rows, with their ``hashes``, which are equal in a group.

    Raises ``WatersmeetError`` for a value that ``operator`` cannot compute.
    """
    items = [f"max({quote(TIME)}) AS {quote(TIME)}", f"count(*) AS {quote(ROWS)}"]
    items += [f"{sql} AS {quote(name)}" for name, sql, _ in (*gathering.keys, *gathering.figures)]
    items += [f"any_value({quote(name)}) AS {quote(name)}" for name in (*gathering.shared, *hashes)]
    by = ", ".join(str(number) for number in range(3, 3 + len(gathering.keys)))
    sql = f"SELECT {', '.join(items)} FROM gathered_rows GROUP BY {by}"
    connection = scratch_connection()
    connection.register("gathered_rows", rows)
    try:
        return connection.sql(sql).to_arrow_table()
    except EVALUATION_ERRORS as error:
        raise cannot_evaluate(operator, error) from None
    finally:
        connection.unregister("gathered_rows")
