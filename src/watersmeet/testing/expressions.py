"""Evaluates row-wise expressions (filters, computed columns, the SELECT list) with DuckDB instead of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import BAD, PART, RAW, SEQUENCE, STORED_FRONTIER, TIME, TP_DELTA, TP_TIME, WEIGHT
from watersmeet.engine.hashing import can_hash, xxhash64
from watersmeet.engine.pack import ARRIVAL, GREATEST_TIME, RAW_TEXT
from watersmeet.engine.routing import NULL_HASH
from watersmeet.errors import BindError
from watersmeet.expressions.event_time import EventTime, TimeUnit
from watersmeet.expressions.type_names import spark_type
from watersmeet.kernels.api import quote
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.state.statements import fetched
from watersmeet.testing.duckdb_sql import duckdb_sql
from watersmeet.testing.explodes import exploded_sql
from watersmeet.testing.windows import windowed_sql

_HINT = "without Spark, DuckDB evaluates expressions; if Spark knows this one, run the case with --spark"


class Projection:
    """The columns of a source's rows that packing and operators need (as runtime/source_columns.py makes them)."""

    def __init__(self, part: PhysicalInput) -> None:
        self._part = part
        self._hashed = {
            name: keys for name, keys in part.hashes.items() if name in part.routed_by or name in part.carried
        }
        self._sql: dict[tuple[str, ...], str] = {}  # by the columns that the rows have

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the columns of some rows.  Raises ``BindError`` for an expression that DuckDB cannot evaluate."""
        columns = tuple(rows.column_names)
        if columns not in self._sql:
            self._sql[columns] = self._sql_over(columns)
        try:
            found = _run(self._sql[columns], rows)
        except duckdb.Error as error:
            name = self._part.input.stream.name
            raise BindError(
                f"an expression over {name} cannot be evaluated: {_first_line(error)}", hint=_HINT
            ) from None
        for name, keys in self._hashed.items():
            names = [f"{name}.{number}" for number in range(len(keys))]
            hashes = hash_values([found[each] for each in names])
            found = found.drop_columns(names).append_column(name, pa.array(hashes))
        return found

    def _sql_over(self, columns: Sequence[str]) -> str:
        part, input = self._part, self._part.input
        items = [f"{_internal_time_sql(input.time)} AS {quote(TIME)}"]
        for name in part.packed:
            if name == part.sequence:
                items.append(f"{SEQUENCE} AS {quote(name)}")
            elif name not in part.hashes:
                items.append(f"{_sql(part.expression_of(name), input)} AS {quote(name)}")
        for name, keys in self._hashed.items():
            items += [f"{_sql(key, input)} AS {quote(f'{name}.{number}')}" for number, key in enumerate(keys)]
        if part.keep is not None:
            items.append(f'{_sql(part.keep, input)} AS "$keep"')
        if part.max_future is not None:
            items.append(f"epoch_us({TP_TIME}) AS {quote(ARRIVAL)}")
        fields = ", ".join(f"{quote(column.name)} := {quote(column.name)}" for column in input.stream.columns)
        record = f"CAST(to_json(struct_pack({fields})) AS VARCHAR)"
        items += [f'{BAD} AS "$bad"', f"coalesce({RAW}, {record}) AS {quote(RAW_TEXT)}"]
        for name, as_name in ((STORED_FRONTIER, "$frontier"), (PART, "$part")):
            if name in columns:
                items.append(f"{name} AS {quote(as_name)}")
        return f"SELECT {', '.join(items)} FROM {_repeated_sql(part, columns)}"


def select(plan: PhysicalPlan, changes: pa.Table, also: Sequence[str] = ()) -> pa.Table:
    """Evaluate the SELECT list over the last operator's results; the columns ``also`` and ``$w`` are the last."""
    weight = f"CAST({quote(WEIGHT) if plan.weighted else 1} AS TINYINT)"
    restored = [f"{_restored_sql(input)} AS {quote(name)}" for name, input in plan.restored()]
    source = f"SELECT *, {', '.join([*restored, f'{weight} AS {quote(TP_DELTA)}'])} FROM input_rows"
    items = [f"{duckdb_sql(each.expression)} AS {quote(each.name)}" for each in plan.outputs]
    items += map(quote, also)
    where = " AND ".join(f"({duckdb_sql(condition)})" for condition in plan.post_filters) or "TRUE"
    try:
        return _run(
            f"SELECT {', '.join(items)}, {quote(TP_DELTA)} AS {quote(WEIGHT)} FROM ({source}) WHERE {where}", changes
        )
    except duckdb.Error as error:
        written = ", ".join(each.expression.sql(dialect="spark") for each in plan.outputs)
        raise BindError(
            f"the SELECT list cannot be evaluated: {_first_line(error)}", detail=written.replace("`", ""), hint=_HINT
        ) from None


def hash_values(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Return the hash of each row of some key columns: that of the workers, if they hash such columns."""
    if all(can_hash(column.type, slowly=True) for column in columns):
        return xxhash64(columns)
    names = [f"key_{number}" for number in range(len(columns))]
    rows = pa.table(dict(zip(names, columns, strict=True)))
    no_value = " AND ".join(f"{name} IS NULL" for name in names)
    value = f"CASE WHEN {no_value} THEN {NULL_HASH} ELSE CAST(hash({', '.join(names)}) >> 1 AS BIGINT) END"
    found: np.ndarray = _run(f"SELECT {value} AS hash FROM input_rows", rows)["hash"].to_numpy()
    return found


def spark_types(schema: pa.Schema) -> list[str]:
    """Return the Spark type names of result columns, to parse expected cells; STRING for types without cells."""
    return [_cell_type(field.type) for field in schema if field.name != WEIGHT]


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """Return this process's one connection: opening another takes longer than running a case."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _run(sql: str, rows: pa.Table) -> pa.Table:
    """Return the result of a query over ``rows``, which is called ``input_rows`` in SQL."""
    connection = _connection()
    connection.register("input_rows", rows)
    try:
        return fetched(connection, sql)
    finally:
        connection.unregister("input_rows")


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _sql(expression: exp.Expr, input: Input) -> str:
    """Return the DuckDB SQL of an expression over one input's declared columns."""

    def declared(node: exp.Expr) -> exp.Expr:
        return _column(input.declared(node.name)) if isinstance(node, exp.Column) else node

    return duckdb_sql(expression.copy().transform(declared, copy=False))


def _repeated_sql(part: PhysicalInput, columns: Sequence[str]) -> str:
    """SQL for the rows of a source, which has these columns: one for each of their windows and elements."""
    input, time = part.input, _internal_time_sql(part.input.time)
    rows = windowed_sql(input, _internal_time_sql(input.window_time), columns)
    usable = f"({time}) BETWEEN {-GREATEST_TIME} AND {GREATEST_TIME}"
    if part.max_future is not None:
        usable += f" AND ({time}) <= epoch_us({TP_TIME}) + {part.max_future}"
    for number, explode in enumerate(input.explodes):
        rows = exploded_sql(rows, explode, _sql(explode.array, input), number, columns, usable)
    return rows


def _column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def _internal_time_sql(time: EventTime) -> str:
    column = quote(time.column)
    if not time.unit.is_integer:
        return f"epoch_us({column})"
    return f"TRY_CAST(CAST({column} AS HUGEINT) * {time.unit.scale} AS BIGINT)"


def _restored_sql(input: Input) -> str:
    internal_time = quote(input.time_name)
    if input.time.unit is TimeUnit.TIMESTAMP:
        return f"CAST(make_timestamp({internal_time}) AS TIMESTAMPTZ)"
    declared = input.stream.column(input.time.column)
    assert declared is not None
    return f"CAST({internal_time} // {input.time.unit.scale} AS {declared.type})"


def _cell_type(kind: pa.DataType) -> str:
    name = spark_type(kind)
    return "STRING" if name == str(kind) else name
