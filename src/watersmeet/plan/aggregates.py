"""Aggregates, planned: what of a row travels to them, how its bucket is chosen, and the operators.

A key or an argument that reads one stream is computed at its source, as keys of joins are; what reads several is
computed by the operator, as far as DuckDB may.  Rows with keys go to the bucket of their group.  Without keys, all
buckets aggregate the rows that they have, and one bucket puts their results together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.typing import plain_sql
from watersmeet.kernels.aggregate.functions import Call, of_parts, of_rows, result, same_float, term_name
from watersmeet.kernels.aggregate.kernel import Aggregate, Output
from watersmeet.kernels.aggregate.parts import Parts
from watersmeet.kernels.api import quote
from watersmeet.plan.certain_types import certain_type
from watersmeet.plan.logical.query import AggregateCall, Aggregation, PhysicalColumn, inputs_of
from watersmeet.plan.physical import Feed, PhysicalInput, PhysicalOperator
from watersmeet.plan.residual import ALLOWED_NAMES, carry_one_sided, first_refused, is_strict, render

#: The operators: the one whose results are the query's, and before it the one over parts of the rows.
FINAL_NAME, PARTS_NAME = "aggregate", "aggregate_parts"
_NO_TIME = "$none:$t"  # partial results have no event time


@dataclass(slots=True)
class Rows:
    """The rows that an aggregate takes, and how what it needs of them gets there.

    ``padded`` inputs may be missing in a row; tables ``outside`` compute nothing.  ``computed`` notes what an input's
    source is to compute and names the column; ``travels_as`` names a column on its way, ``axis`` is an input's event
    time where it arrives, ``value`` what stands there for a column.  ``needed`` collects the columns that must travel.
    """

    inputs: Sequence[PhysicalInput]
    columns: dict[str, PhysicalColumn]
    padded: frozenset[int]
    outside: frozenset[int]
    computed: Callable[[int, exp.Expr], str]
    travels_as: Callable[[exp.Expr], str]
    axis: Callable[[int], exp.Expr]
    value: Callable[[str], exp.Expr]
    needed: set[str] = field(default_factory=set)
    _at_sources: dict[tuple[int, str], str] = field(default_factory=dict)

    def sql(self, expression: exp.Expr, kind: exp.DataType) -> str:
        """DuckDB SQL of an expression over the rows, in its type.

        Raises ``UnsupportedError`` for a function across streams that DuckDB may not evaluate.
        """
        if isinstance(expression, exp.Column) and self.travels_as(expression) == expression.name:
            found = expression.name
        elif (input := self.source_of(expression)) is not None:
            known = (input, expression.sql(dialect="spark"))
            if known not in self._at_sources:
                self._at_sources[known] = self.computed(input, exp.cast(expression.copy(), kind))
            found = self._at_sources[known]
        else:
            carried = carry_one_sided(expression, self.columns, self.padded, self.computed, outside=self.outside)
            if first_refused(carried) is not None:
                raise _not_across(carried)
            self.needed |= {self.travels_as(column) for column in carried.find_all(exp.Column)}
            return f"CAST({render(carried, self.value)} AS {kind.sql(dialect='duckdb')})"
        self.needed.add(found)
        return quote(found)

    def time(self, input: int) -> str:
        """SQL of an input's event time."""
        self.needed.add(self.inputs[input].input.time_name)
        return self.axis(input).sql(dialect="duckdb")

    def source_of(self, expression: exp.Expr) -> int | None:
        """The input at whose source an expression can be computed."""
        read = inputs_of(expression, self.columns)
        if len(read) != 1 or read & self.outside:
            return None
        (input,) = read
        return None if input in self.padded and not is_strict(expression) else input

    def hashed(self, name: str, expressions: Sequence[exp.Expr]) -> tuple[str, ...]:
        """Hash columns over those of the expressions that sources can compute, one for each source."""
        by_input: dict[int, list[exp.Expr]] = {}
        for expression in expressions:
            kind = certain_type(expression, self.columns)
            if kind is not None and (input := self.source_of(expression)) is not None:
                by_input.setdefault(input, []).append(exp.cast(expression.copy(), kind))
        found = []
        for input, keys in sorted(by_input.items()):
            column = self.inputs[input].input.physical(name)
            self.inputs[input].hashes[column] = keys
            found.append(column)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """An aggregation over the columns that travel; ``route`` are the hash columns that choose a row's bucket.

    ``in_parts``: all buckets aggregate what they have, and another operator puts that together.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    calls: tuple[Call, ...]
    where: str | None
    route: tuple[str, ...]
    in_parts: bool

    def operators(self, feed: Feed, index: int, *, changes: bool) -> list[PhysicalOperator]:
        """The operators, the first of which is the plan's number ``index``; with ``changes`` its rows come and go."""
        parts = Parts(append_only=not changes)
        terms = [of_rows(call, parts) for call in self.calls]
        if not self.in_parts:
            outputs = self._results([result(call, each) for call, each in zip(self.calls, terms, strict=True)])
            kernel = self._kernel(parts, outputs, where=self.where, changes=changes, always=not self.keys)
            return [_operator(FINAL_NAME, kernel, feed, self.route)]
        partial = [
            Output(term_name(call, name), sql, type)
            for call, each in zip(self.calls, terms, strict=True)
            for name, (sql, type) in each.items()
        ]
        partial.append(Output(_NO_TIME, "CAST(NULL AS BIGINT)", pa.int64()))
        first = self._kernel(parts, partial, where=self.where, changes=changes, always=False)
        parts = Parts(append_only=False)
        outputs = self._results([result(call, of_parts(call, parts)) for call in self.calls])
        last = self._kernel(parts, outputs, where=None, changes=True, always=True)
        return [
            _operator(PARTS_NAME, first, feed, self.route),
            _operator(FINAL_NAME, last, Feed((_NO_TIME,), operator=index, lag=None), ()),
        ]

    def _results(self, values: Sequence[str]) -> list[Output]:
        return [Output(call.name, sql, call.result_type) for call, sql in zip(self.calls, values, strict=True)]

    def _kernel(
        self, parts: Parts, outputs: Sequence[Output], *, where: str | None, changes: bool, always: bool
    ) -> Aggregate:
        return Aggregate(self.keys, parts.totals, parts.bags, tuple(outputs), where, changes, always)


def plan_aggregation(aggregation: Aggregation, rows: Rows, spread: tuple[str, ...] | None) -> AggregatePlan:
    """How an aggregation is computed over ``rows``.

    ``spread`` are hash columns by which the rows lie in buckets already (none: all in one); None: there is one bucket.

    Raises ``UnsupportedError`` for what reads several streams and can be computed neither at a source nor by DuckDB.
    """
    keys = []
    for key in aggregation.keys:
        type = arrow_type(key.type)
        keys.append((key.name, same_float(rows.sql(key.expression, key.type), type), type))
    calls = tuple(_call(call, rows) for call in aggregation.calls)
    conditions = [rows.sql(condition, _build("BOOLEAN")) for condition in aggregation.conditions]
    if keys:
        route = rows.hashed("$h_group", [key.expression for key in aggregation.keys])
    elif spread is None:
        route = ()
    elif (distinct := distinct_arguments(aggregation)) is None:
        route = spread
    else:
        route = rows.hashed("$h_value", [distinct[0]]) if len(distinct) == 1 else ()
    return AggregatePlan(tuple(keys), calls, " AND ".join(conditions) or None, route, bool(route) and not keys)


def distinct_arguments(aggregation: Aggregation) -> tuple[exp.Expr, ...] | None:
    """What DISTINCT is about, over all functions that have it; None where none has."""
    found = [argument for call in aggregation.calls if call.function.is_distinct for argument in call.arguments]
    return tuple(dict.fromkeys(found)) or None


def _call(call: AggregateCall, rows: Rows) -> Call:
    """A function over SQL; FILTER makes a value NULL, and so leaves it out."""
    type = arrow_type(call.type)
    values = []
    for argument in call.arguments:
        kind = certain_type(argument, rows.columns) or call.type
        values.append(same_float(rows.sql(argument, kind), arrow_type(kind)))
    value = values[0] if values else None
    if len(values) > 1:
        there = " AND ".join(f"{each} IS NOT NULL" for each in values)
        fields = ", ".join(f"v{number} := {each}" for number, each in enumerate(values))
        value = f"CASE WHEN {there} THEN struct_pack({fields}) END"
    time = rows.time(call.time) if call.time is not None else None
    if call.condition is not None:
        condition = rows.sql(call.condition, _build("BOOLEAN"))
        if time is None:
            value = f"CASE WHEN {condition} THEN {value or 1} END"
        else:
            time = f"CASE WHEN {condition} THEN {time} END"
    return Call(call.name, call.function, value, type, time, call.text)


def _operator(name: str, kernel: Aggregate, feed: Feed, route: tuple[str, ...]) -> PhysicalOperator:
    return PhysicalOperator(
        name=name,
        kernel=kernel,
        feeds=(feed,),
        routed_by=(route,),
        output=tuple(kernel.output_types),
        single_bucket=not route,
        weighted=True,
    )


def _not_across(expression: exp.Expr) -> UnsupportedError:
    part = first_refused(expression) or expression
    return UnsupportedError(
        f"below an aggregate, {plain_sql(part)} is not supported in what reads several streams, or one whose rows an"
        " outer join may pad",
        detail=f"supported there: {ALLOWED_NAMES}",
        hint="compute it of each stream alone",
        position=position_of(part),
    )


def _build(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect="spark")
