"""Window functions in the order of event time with final results, planned: what is kept for which frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from watersmeet.engine.keys import HashedKeys
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import FRACTIONS, INTEGERS, MAX_DIGITS, digits_of
from watersmeet.kernels.aggregate.functions import same_float
from watersmeet.kernels.over.carried import RANKS, Running
from watersmeet.kernels.over.in_time import OverInTime
from watersmeet.kernels.over.in_time_step import ROWS
from watersmeet.kernels.over.kernel import Value
from watersmeet.plan.aggregate_rows import AggregateRows
from watersmeet.plan.emission import final_in_time
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import Frame, LogicalQuery, Over, OverCall
from watersmeet.plan.operators.over import argument_names
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class InTimeOperator(PhysicalOperator):
    """Keeps rows until the frontier has passed them, and what frames of later rows read."""

    kernel: OverInTime
    over: Over
    unit: TimeUnit

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def waiting(self) -> tuple[str, ...]:
        """The rows that are not final, and some that frames reach back to."""
        return (ROWS,)

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """The values."""
        kernel = self.kernel
        return {each.name: each.type for each in kernel.framed} | {each.name: each.type for each in kernel.running}

    def is_hybrid(self, settings: QuerySettings) -> bool:
        """As the setting for aggregates says."""
        return settings.default_hash_table == "hybrid"

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """The partition, the order and what is kept."""
        over, kernel = self.over, self.kernel
        partition = ", ".join(plain_sql(key.expression) for key in over.partition)
        by = ", ".join(plain_sql(term) + (" DESC" if descending else "") for term, descending in over.by)
        where = f"of each {partition}" if partition else "of all rows"
        buckets = "one bucket" if self.single_bucket else "by hash of the partition"
        what = "window functions" if over.limit is None else f"the first {over.limit} rows"
        yield f"{self.name}: {what} {where} by {by}, EMIT FINAL: each row once the frontier has passed it, {buckets}"
        for call in over.calls:
            yield f"  computes {call.text}"
        for condition in over.conditions:
            yield f"  filter before: {plain_sql(condition)}"
        kept = ["rows that the frontier has not passed"]
        kept += [f"those up to {span_text(kernel.time_before, self.unit)} behind it"] if kernel.time_before else []
        kept += [f"the last {kernel.rows_before} of each partition"] if kernel.rows_before else []
        kept += ["a row of running values for each partition"] if kernel.running else []
        yield f"  state: {', '.join(kept)}"


@dataclass(frozen=True, slots=True)
class InTimePlan:
    """Window functions over the columns that travel; ``route`` are the hash columns that choose a row's bucket."""

    over: Over
    unit: TimeUnit
    kernel: OverInTime
    route: tuple[str, ...]
    hashed: HashedKeys

    def operator(self, feed: Feed) -> InTimeOperator:
        """The operator over ``feed``."""
        return InTimeOperator(
            name="over_in_time",
            kernel=self.kernel,
            feeds=(feed,),
            routed_by=(self.route,),
            hashed=(self.hashed,),
            output=(*(name for name, _ in self.kernel.output), *self.kernel.shown),
            single_bucket=not self.route,
            over=self.over,
            unit=self.unit,
        )


def plan_in_time(query: LogicalQuery, rows: AggregateRows, needed: frozenset[str]) -> InTimePlan:
    """How window functions are computed over ``rows``; ``needed`` are the columns of the results.

    Raises ``UnsupportedError`` for what reads several streams and can be computed neither at a source nor by DuckDB.
    """
    over, time = query.over, final_in_time(query)
    assert over is not None
    assert time is not None
    unit = query.inputs[time.input].time.unit
    keys = rows.keys(over.partition)
    order = []
    for place, (term, descending) in enumerate(over.by[1:]):
        kind = type_of(term, rows.sources.columns)
        order.append((f"$o{place}", same_float(rows.sql(term, kind), arrow_type(kind)), descending))
    arguments: dict[str, str] = {}
    framed, running, frames = [], [], []
    for call in over.calls:
        names = argument_names(call, arguments, rows)
        if _is_running(call):
            running.append(_running(call, names, rows))
        else:
            frames.append(frame := _frame(call, unit))
            sql = call.call.format(*names, over="{over}", order="{order}")
            framed.append(Value(call.name, sql, arrow_type(call.type), frame.sql, call.tied))
    made = {call.name for call in over.calls}
    kernel = OverInTime(
        keys=keys,
        order=tuple(order),
        arguments=tuple((name, sql) for sql, name in arguments.items()),
        framed=tuple(framed),
        running=tuple(running),
        output=tuple((name, rows.column(name)) for name in sorted(needed - made)),
        shown=tuple(call.name for call in over.calls if call.shown),
        limit=None if over.limit is None else (over.calls[0].name, over.limit),
        where=rows.conditions(over.conditions),
        rows_before=max([_back(frame) for frame in frames if frame.by_rows], default=0),
        time_before=max([_back(frame) for frame in frames if not frame.by_rows], default=0),
    )
    return InTimePlan(over, unit, kernel, *rows.route("$h_partition", over.partition))


def _is_running(call: OverCall) -> bool:
    """Whether a value reads all rows of its partition so far, so that it is added up."""
    if call.function in ("lag", "lead", "last_value"):  # the last value up to a row is that of its place
        return False
    return call.function in RANKS or call.frame is None or call.frame.start is None


def _frame(call: OverCall, unit: TimeUnit) -> Frame:
    """The frame in units of internal event time, whose rows are kept."""
    frame = call.frame
    if call.function in ("lag", "lead"):
        return Frame(by_rows=True, start=-call.offset, end=0)
    if frame is None or frame.start is None:
        return Frame(by_rows=frame is not None and frame.by_rows, start=0, end=0)
    if frame.by_rows or frame.in_time:
        return Frame(frame.by_rows, frame.start, frame.end)
    assert frame.end is not None
    return Frame(by_rows=False, start=frame.start * unit.scale, end=frame.end * unit.scale)


def _back(frame: Frame) -> int:
    assert frame.start is not None
    return max(-frame.start, 0)


def _running(call: OverCall, names: Sequence[str], rows: AggregateRows) -> Running:
    adds_as = ""
    if call.function in ("sum", "avg"):
        (argument,) = call.arguments
        kind = type_of(argument, rows.sources.columns)
        adds_as = "DOUBLE" if kind.is_type(*FRACTIONS) else f"DECIMAL({MAX_DIGITS}, {_scale(kind)})"
    keeps_type = call.function in ("min", "max", "first_value")
    sql_type = "" if keeps_type else call.type.sql(dialect="duckdb")
    argument_sql = names[0] if names else None
    by_rows = call.tied or call.function == "first_value"  # the first row of all is one of each frame
    return Running(call.name, call.function, argument_sql, by_rows, arrow_type(call.type), sql_type, adds_as)


def _scale(kind: exp.DataType) -> int:
    return 0 if kind.is_type(*INTEGERS) else digits_of(kind)[1]
