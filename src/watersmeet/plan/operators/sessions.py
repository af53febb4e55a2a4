"""Sessions, planned: what keys them, how their bucket is chosen, and the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from watersmeet.engine.keys import KeyColumn
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.windows import WindowBound, last_before_end
from watersmeet.kernels.aggregate.functions import same_float
from watersmeet.kernels.sessions import Sessions
from watersmeet.plan.aggregate_rows import AggregateRows
from watersmeet.plan.logical.query import LogicalQuery, SessionWindows
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsOperator(PhysicalOperator):
    """Keeps the rows of sessions that are not final."""

    kernel: Sessions
    sessions: SessionWindows
    unit: TimeUnit

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """The bounds of sessions."""
        return {name: kind for name, _, kind in self.kernel.bounds}

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """The keys, the gap and what is kept."""
        keys = ", ".join(plain_sql(key.expression) for key in self.sessions.partition)
        of = f"of each {keys}" if keys else "of all rows"
        buckets = "one bucket" if self.single_bucket else "by hash of the key"
        gap = span_text(self.sessions.gap, self.unit)
        yield f"{self.name}: sessions {of}, which end {gap} after their last row, EMIT FINAL, {buckets}"
        yield "  state: the rows of sessions whose end >= frontier"


@dataclass(frozen=True, slots=True)
class SessionsPlan:
    """Sessions over the columns that travel; ``route`` are the hash columns that choose a row's bucket."""

    sessions: SessionWindows
    unit: TimeUnit
    kernel: Sessions
    route: tuple[str, ...]
    hashed: tuple[tuple[KeyColumn, ...], ...]

    def operator(self, feed: Feed) -> SessionsOperator:
        """The operator over ``feed``."""
        return SessionsOperator(
            name="sessions",
            kernel=self.kernel,
            feeds=(feed,),
            routed_by=(self.route,),
            hashed=(self.hashed,),
            output=(*(name for name, _ in self.kernel.output), *(name for name, _, _ in self.kernel.bounds)),
            single_bucket=not self.route,
            sessions=self.sessions,
            unit=self.unit,
        )


def plan_sessions(query: LogicalQuery, rows: AggregateRows, needed: frozenset[str]) -> SessionsPlan:
    """How sessions are computed over ``rows``; ``needed`` are the columns of the results."""
    sessions = query.sessions
    assert sessions is not None
    input = query.inputs[sessions.input]
    keys = []
    for key in sessions.partition:
        kind = arrow_type(key.type)
        keys.append((key.name, same_float(rows.sql(key.expression, key.type), kind), kind))
    added = {bound.value: bound for bound in WindowBound}
    output = tuple(
        (name, rows.column(name)) for name in sorted(name for name in needed if name.lstrip("$") not in added)
    )
    kind = arrow_type(_time_type(input))
    values = {WindowBound.START: "s", WindowBound.END: "e", WindowBound.TIME: f"e - {last_before_end(input.time.unit)}"}
    bounds = tuple((f"${bound.value}", _declared(sql, input), kind) for bound, sql in values.items())
    conditions = [rows.sql(condition, exp.DataType.build("BOOLEAN")) for condition in sessions.conditions]
    hashes = rows.hashed("$h_session", [key.expression for key in sessions.partition]) if keys else {}
    hashed = tuple(
        tuple(KeyColumn((keys[place][0],), arrow_type(kind)) for place, kind in parts) for parts in hashes.values()
    )
    kernel = Sessions(tuple(keys), output, bounds, sessions.gap, " AND ".join(conditions) or None)
    return SessionsPlan(sessions, input.time.unit, kernel, tuple(hashes), hashed)


def _time_type(input: Input) -> exp.DataType:
    column = input.stream.column(input.time.column)
    return exp.DataType.build(column.type if column is not None else "TIMESTAMP", dialect="spark")


def _declared(value: str, input: Input) -> str:
    """DuckDB SQL for an internal time in the type of an input's event time."""
    unit = input.time.unit
    if unit is TimeUnit.TIMESTAMP:
        return f"CAST(make_timestamp({value}) AS TIMESTAMPTZ)"
    if unit is TimeUnit.TIMESTAMP_NTZ:
        return f"make_timestamp({value})"
    return f"CAST(({value}) // {unit.scale} AS {_time_type(input).sql(dialect='duckdb')})"
