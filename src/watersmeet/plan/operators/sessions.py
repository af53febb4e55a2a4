"""Sessions, planned: what keys them, how their bucket is chosen, and the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.keys import KeyColumn
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.windows import WindowBound, last_before_end
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
    def takes_pieces(self) -> bool:
        """Always."""
        return True

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
    keys = rows.keys(sessions.partition)
    added = {bound.value: bound for bound in WindowBound}
    output = tuple(
        (name, rows.column(name)) for name in sorted(name for name in needed if name.lstrip("$") not in added)
    )
    kind = arrow_type(input.time_type)
    values = {WindowBound.START: "s", WindowBound.END: "e", WindowBound.TIME: f"e - {last_before_end(input.time.unit)}"}
    bounds = tuple((f"${bound.value}", _declared(sql, input), kind) for bound, sql in values.items())
    kernel = Sessions(keys, output, bounds, sessions.gap, rows.conditions(sessions.conditions))
    return SessionsPlan(sessions, input.time.unit, kernel, *rows.route("$h_session", sessions.partition))


def _declared(value: str, input: Input) -> str:
    """DuckDB SQL for an internal time in the type of an input's event time."""
    unit = input.time.unit
    if unit is TimeUnit.TIMESTAMP:
        return f"CAST(make_timestamp({value}) AS TIMESTAMPTZ)"
    if unit is TimeUnit.TIMESTAMP_NTZ:
        return f"make_timestamp({value})"
    return f"CAST(({value}) // {unit.scale} AS {input.time_type.sql(dialect='duckdb')})"
