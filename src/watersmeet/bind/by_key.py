"""INSERT INTO a target with a PRIMARY KEY, in real time.

Micro-batches net the changes of a key before they are written.  In real time they are written as they come, so they
must have an order: all of a key from one bucket.  Where a query sends them from several, one more operator, divided by
the key, takes its results: it keeps the rows that each key has, and gives the first of them (Flink's name for such an
operator is upsert materializer).  It is the operator of ``ROW_NUMBER() OVER (PARTITION BY key …) = 1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.errors import UnsupportedError, WatersmeetError
from watersmeet.lookup.tables import OpenTable, open_table
from watersmeet.plan.key_order import keeps_order
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.sql.column_names import take_column_names
from watersmeet.sql.statements import InsertSelect, Query

_RESULTS = "results"


def plan_insert(
    insert: InsertSelect, target: StreamDef, streams: Mapping[str, StreamDef], open_table: OpenTable = open_table
) -> PhysicalPlan:
    """Return the plan of the query with which a stream is fed.

    Raises as ``plan_query`` does, and ``UnsupportedError`` for a key by which the results cannot be divided.
    """
    plan = plan_query(insert.query, streams, open_table)
    ordered = in_order_of_keys(insert, target, plan)
    if ordered is None:
        return plan
    try:
        return plan_query(ordered, streams, open_table)
    except WatersmeetError as error:
        raise UnsupportedError(
            f"{target.name} takes the changes of a key in their order, but this query sends them from several tasks, "
            f"and its results cannot be divided by the PRIMARY KEY ({', '.join(target.primary_key)})",
            detail=error.message,
            hint="CAST the columns of the key to the types of the target; add the column of the last join or GROUP BY "
            "to the key; or leave out mode = 'real_time' (or --real-time): micro-batches take it",
            position=insert.position,
        ) from None


def in_order_of_keys(insert: InsertSelect, target: StreamDef, plan: PhysicalPlan) -> Query | None:
    """Return the query that gives the changes of each key in their order; None where its own ``plan`` has to do."""
    if not (plan.query.settings.is_real_time and target.changes) or keeps_order(plan, target, insert.columns):
        return None
    names = [column.name for column in plan.outputs]
    wanted = [name.lower() for name in insert.columns or [column.name for column in target.columns]]
    keys = [place for place, name in enumerate(wanted) if name in {each.lower() for each in target.primary_key}]
    if len(names) != len(wanted) or not keys or TP_DELTA in wanted:
        return None  # the target does not take these columns, or they have no order by its key
    types = {column.name.lower(): column.type for column in target.columns}
    return _first_of_each_key(insert.query, names, {place: types[wanted[place]] for place in keys})


def _first_of_each_key(query: Query, names: list[str], keys: Mapping[int, str]) -> Query:
    """The query that gives one row of a query's results for each key; ``keys`` are places and types of its columns."""
    source = exp.Subquery(this=query.select.copy(), alias=exp.TableAlias(this=exp.to_identifier(_RESULTS)))
    unique = names
    if len({name.lower() for name in names}) < len(names):
        unique = [f"c{place}" for place in range(len(names))]
        source.args["alias"].set("columns", [exp.to_identifier(name) for name in unique])
        take_column_names(source)
    columns = [exp.column(exp.to_identifier(name, quoted=True), table=_RESULTS) for name in unique]
    parts = [exp.cast(columns[place].copy(), kind, dialect="spark") for place, kind in keys.items()]
    term = exp.Ordered(this=columns[next(iter(keys))].copy(), nulls_first=True)  # all are equal: any row will do
    first = exp.Window(this=exp.RowNumber(), partition_by=parts, order=exp.Order(expressions=[term]))
    items = [exp.alias_(column, name, quoted=True) for column, name in zip(columns, names, strict=True)]
    select = exp.select(*items).from_(source).qualify(exp.EQ(this=first, expression=exp.Literal.number(1)))
    return replace(query, select=select)
