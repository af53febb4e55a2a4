"""Aggregates, planned: what groups rows, how their bucket is chosen, and the operators.

Rows with keys go to the bucket of their group.  Without keys, each bucket aggregates the rows that it has, and one
bucket combines the partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa
from sqlglot import exp

from watersmeet.engine.gathering import Gathering
from watersmeet.engine.keys import HashedKeys
from watersmeet.engine.specs import InputSpec
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.aggregate.functions import Call, of_parts, of_rows, result, same_float, term_name
from watersmeet.kernels.aggregate.kernel import Aggregate, Output
from watersmeet.kernels.aggregate.parts import Parts
from watersmeet.kernels.api import NEVER, EmitMode, quote
from watersmeet.plan.aggregate_rows import AggregateRows
from watersmeet.plan.closing import Closing, closing_of
from watersmeet.plan.emission import is_distinct
from watersmeet.plan.gathering import gathering_of
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.query import AggregateCall, Aggregation, LogicalQuery
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan, fingerprint_of
from watersmeet.settings.query_settings import QuerySettings

_NO_TIME = "$none:$t"  # partial results have no event time


class Stage(Enum):
    """Which part of an aggregation an operator computes."""

    WHOLE = "whole"
    PARTS = "parts"
    COMBINED = "combined"

    @property
    def operator_name(self) -> str:
        """The name of the operator; the one whose results are the query's is always ``aggregate``."""
        return "aggregate_parts" if self is Stage.PARTS else "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateOperator(PhysicalOperator):
    """Keeps a row for each group; emits a changelog."""

    kernel: Aggregate
    stage: Stage
    aggregation: Aggregation
    closing: Closing | None = None

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def waiting(self) -> tuple[str, ...]:
        """All that is kept of a group, where it is emitted at its end."""
        return tuple(self.kernel.live_relations(NEVER)) if self.kernel.final and self.kernel.end is not None else ()

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """Keys and the functions' values."""
        return self.kernel.output_types

    @property
    def passes_any_time(self) -> bool:
        """Where no group ever ends."""
        return self.closing is None

    def is_hybrid(self, settings: QuerySettings) -> bool:
        """As the setting for aggregates says."""
        return settings.default_hash_table == "hybrid"

    def fingerprint(self, inputs: Sequence[InputSpec], buckets: tuple[int, ...], output: pa.Schema) -> str:
        """As of any operator; that of a plain changelog is what it was before groups could end."""
        found = PhysicalOperator.fingerprint(self, inputs, buckets, output)  # slots and super() do not go together
        emits = self.kernel.emits
        return found if emits is None else fingerprint_of((found, *emits))

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """Groups, functions and what is kept for them."""
        if self.stage is Stage.COMBINED:
            yield f"{self.name}: combines the results of all buckets, in one bucket"
            return
        aggregation = self.aggregation
        keys = ", ".join(plain_sql(key.expression) for key in aggregation.keys)
        what = f"GROUP BY {keys}" if keys else "all rows"
        yield f"{self.name}: {what}, {self._emits()}, {self._buckets(plan.query.settings)}"
        if self.kernel.gathered:
            yield "  rows of a group are added up where they are packed"
        for condition in aggregation.conditions:
            yield f"  filter before the aggregate: {plain_sql(condition)}"
        values = [call.text for call in aggregation.calls if not call.function.is_running]
        running = [call.text for call in aggregation.calls if call.function.is_running]
        if running:
            yield f"  running totals: {', '.join(running)}"
        if values:
            when = (
                "computed when a group ends" if self.kernel.final else "recomputed when values are added or retracted"
            )
            yield f"  {when}: {', '.join(values)}"
        kept = ""
        if values:
            ends = all(bag.ends for bag in self.kernel.bags if bag.amount is None)
            kept = ", and its first and last values (rows only ever come)" if ends else ", and its distinct values"
        until = "the end of input" if self.closing is None else f"its end <= frontier ({self._end()})"
        yield f"  state: {'a row for each group' if keys else 'one row'}{kept}; kept until {until}"
        if keys and not (self.kernel.final or self.kernel.once):
            yield "  for each group that changed, the previous row is retracted (-1) and the new one emitted (+1)"

    def _emits(self) -> str:
        if self.kernel.final:
            return "EMIT FINAL: each group once, when it has ended"
        return "EMIT FINAL: each group once, when it first comes" if self.kernel.once else "EMIT CHANGELOG"

    def _end(self) -> str:
        assert self.closing is not None
        key, after = plain_sql(self.closing.key.expression), self.closing.before_end
        if self.closing.rising is not None:
            return f"where {key} becomes greater"
        return f"{key} + {span_text(after, self.closing.unit)}" if after else key

    def _buckets(self, settings: QuerySettings) -> str:
        distinct = distinct_arguments(self.aggregation)
        if self.stage is Stage.PARTS:
            if distinct is None:
                return "in each bucket, over the rows it has"
            return f"in each bucket, by hash of {plain_sql(distinct[0])}"
        if not self.single_bucket:
            return "by hash of the group"
        if self.aggregation.keys:
            return "one bucket (no key comes from one stream whose rows are never padded)"
        if settings.buckets == 1:
            return "one bucket"
        if distinct is not None:
            why = "several DISTINCT arguments" if len(distinct) > 1 else "DISTINCT over several streams"
            return f"one bucket ({why})"
        if (whole := next((call for call in self.aggregation.calls if call.function.needs_all), None)) is not None:
            return f"one bucket ({whole.text} needs all values)"
        return "one bucket (the join has no key)"


@dataclass(frozen=True, slots=True)
class Emits:
    """When an aggregation emits, and what: ``final``, each group when it has ended; ``once``, when it first comes.

    ``gives_ids``: another query of the statement reads the results.
    """

    closing: Closing | None
    final: bool = False
    once: bool = False
    gives_ids: bool = False

    @property
    def end(self) -> str | None:
        """SQL over the keys: the time from which on no row of a group comes."""
        return None if self.closing is None else self.closing.end(quote(self.closing.key.name))


def emits_of(query: LogicalQuery, mode: EmitMode) -> Emits:
    """What the aggregation of a query emits."""
    once = mode is EmitMode.FINAL and is_distinct(query)
    final = mode is EmitMode.FINAL and not once
    return Emits(closing_of(query), final, once, query.inner and not (final or once))


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """An aggregation over the columns that travel; ``route`` are the hash columns that choose a row's bucket.

    ``hashed``: the keys that they are made of, where groups have keys.
    ``in_parts``: every bucket aggregates its own rows, and a second operator combines the results.
    """

    aggregation: Aggregation
    emits: Emits
    keys: tuple[tuple[str, str, pa.DataType], ...]
    calls: tuple[Call, ...]
    where: str | None
    route: tuple[str, ...]
    in_parts: bool
    hashed: HashedKeys = ()

    def operators(self, feed: Feed, number: int, gather: Callable[[Gathering], None] | None) -> list[PhysicalOperator]:
        """The operators over ``feed``; the first is the plan's operator ``number``.

        ``gather`` has the rows of the feed travel gathered (None: they cannot).
        """
        parts = Parts(append_only=not feed.changelog)
        terms = [of_rows(call, parts) for call in self.calls]
        if not self.in_parts:
            outputs = self._results([result(call, each) for call, each in zip(self.calls, terms, strict=True)])
            kernel = self._kernel(parts, outputs, where=self.where, changes=feed.changelog, always=not self.keys)
            kernel = replace(
                kernel,
                end=self.emits.end,
                final=self.emits.final,
                once=self.emits.once,
                gives_ids=self.emits.gives_ids,
            )
            if gather is not None and (found := gathering_of(kernel, feed, self.calls)) is not None:
                gathering, kernel = found
                gather(gathering)
            return [self._operator(Stage.WHOLE, kernel, feed, self.route)]
        partial = [
            Output(term_name(call, name), sql, type)
            for call, each in zip(self.calls, terms, strict=True)
            for name, (sql, type) in each.items()
        ]
        partial.append(Output(_NO_TIME, "CAST(NULL AS BIGINT)", pa.int64()))
        first = self._kernel(parts, partial, where=self.where, changes=feed.changelog, always=False)
        parts = Parts(append_only=False)
        outputs = self._results([result(call, of_parts(call, parts)) for call in self.calls])
        last = self._kernel(parts, outputs, where=None, changes=True, always=True)
        last = replace(last, gives_ids=self.emits.gives_ids)
        partials = Feed((_NO_TIME,), operator=number, lag=None, changelog=True)
        return [
            self._operator(Stage.PARTS, first, feed, self.route),
            self._operator(Stage.COMBINED, last, partials, ()),
        ]

    def _results(self, values: Sequence[str]) -> list[Output]:
        return [Output(call.name, sql, call.result_type) for call, sql in zip(self.calls, values, strict=True)]

    def _kernel(
        self, parts: Parts, outputs: Sequence[Output], *, where: str | None, changes: bool, always: bool
    ) -> Aggregate:
        return Aggregate(self.keys, parts.totals, parts.bags, tuple(outputs), where, changes, always)

    def _operator(self, stage: Stage, kernel: Aggregate, feed: Feed, route: tuple[str, ...]) -> AggregateOperator:
        return AggregateOperator(
            name=stage.operator_name,
            kernel=kernel,
            feeds=(feed,),
            routed_by=(route,),
            hashed=(self.hashed,),
            output=tuple(kernel.output_types),
            single_bucket=not route,
            weighted=not (kernel.final or kernel.once),
            gives_ids=kernel.gives_ids,
            stage=stage,
            aggregation=self.aggregation,
            closing=self.emits.closing,
        )


def plan_aggregation(
    aggregation: Aggregation, emits: Emits, rows: AggregateRows, arrival_route: tuple[str, ...] | None
) -> AggregatePlan:
    """How an aggregation is computed over ``rows``.

    ``arrival_route`` are the hash columns that route the rows as they arrive (none: all in one bucket); None where
    there is one bucket.

    Raises ``UnsupportedError`` for what reads several streams and can be computed neither at a source nor by DuckDB.
    """
    keys = rows.keys(aggregation.keys)
    calls = tuple(_call(call, rows) for call in aggregation.calls)
    where = rows.conditions(aggregation.conditions)
    hashed: HashedKeys = ()
    route: tuple[str, ...]
    if keys:
        route, hashed = rows.route("$h_group", aggregation.keys)
    elif arrival_route is None or any(call.function.needs_all for call in calls):
        route = ()
    elif (distinct := distinct_arguments(aggregation)) is None:
        route = arrival_route
    else:
        route = tuple(rows.hashed("$h_value", [distinct[0]])) if len(distinct) == 1 else ()
    return AggregatePlan(aggregation, emits, keys, calls, where, route, bool(route) and not keys, hashed)


def distinct_arguments(aggregation: Aggregation) -> tuple[exp.Expr, ...] | None:
    """The arguments of all functions with DISTINCT; None where no function has it."""
    found = [argument for call in aggregation.calls if call.function.is_distinct for argument in call.arguments]
    return tuple(dict.fromkeys(found)) or None


def _call(call: AggregateCall, rows: AggregateRows) -> Call:
    """A function over SQL; FILTER turns the values it rejects into NULL, which functions skip."""
    type = arrow_type(call.type)
    values = []
    for argument in call.arguments:
        kind = certain_type(argument, rows.sources.columns) or call.type
        values.append(same_float(rows.sql(argument, kind), arrow_type(kind)))
    value = values[0] if values else None
    order, order_type = (rows.time(call.time), pa.int64()) if call.time is not None else (None, pa.int64())
    if call.function.is_ordered:
        _, order = values
        order_type = arrow_type(certain_type(call.arguments[1], rows.sources.columns) or call.type)
    elif len(values) > 1:
        there = " AND ".join(f"{each} IS NOT NULL" for each in values)
        fields = ", ".join(f"v{number} := {each}" for number, each in enumerate(values))
        value = f"CASE WHEN {there} THEN struct_pack({fields}) END"
    if call.condition is not None:
        condition = rows.sql(call.condition, _build("BOOLEAN"))
        if order is None:
            value = f"CASE WHEN {condition} THEN {value or 1} END"
        else:
            order = f"CASE WHEN {condition} THEN {order} END"
    return Call(call.name, call.function, value, type, order, order_type, call.given, call.many, call.text)


def _build(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect="spark")
