"""Window functions over partitions, planned: what orders rows, how their bucket is chosen, and the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.engine.keys import HashedKeys
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.aggregate.functions import same_float
from watersmeet.kernels.api import EmitMode, quote
from watersmeet.kernels.over.kernel import Over as OverKernel
from watersmeet.kernels.over.kernel import Value
from watersmeet.plan.aggregate_rows import AggregateRows
from watersmeet.plan.closing import Closing, closing_of
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import LogicalQuery, Over, OverCall
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OverOperator(PhysicalOperator):
    """Keeps the first rows of each partition, or all of them."""

    kernel: OverKernel
    over: Over
    closing: Closing | None = None

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def passes_any_time(self) -> bool:
        """Where no partition ever ends."""
        return self.closing is None

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """The values."""
        return {value.name: value.type for value in self.kernel.values}

    def is_hybrid(self, settings: QuerySettings) -> bool:
        """As the setting for aggregates says."""
        return settings.default_hash_table == "hybrid"

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """The partition, the order and what is kept."""
        over = self.over
        partition = ", ".join(plain_sql(key.expression) for key in over.partition)
        by = ", ".join(plain_sql(term) + (" DESC" if descending else "") for term, descending in over.by)
        where = f"of each {partition}" if partition else "of all rows"
        mode = "EMIT FINAL: when a partition has ended" if self.kernel.final else "EMIT CHANGELOG"
        mode = mode if self.weighted else "EMIT FINAL: as they come"
        buckets = "one bucket" if self.single_bucket else "by hash of the partition"
        if over.limit is not None:
            kind = over.calls[0].function.upper()
            rows = f"rows {over.skipped + 1} to {over.limit}" if over.skipped else f"the first {over.limit} rows"
            how = "that come" if self.kernel.by_arrival else f"by {by} ({kind})" if by else "by their columns"
            yield f"{self.name}: {rows} {where} {how}, {mode}, {buckets}"
        else:
            yield f"{self.name}: window functions {where}{f' by {by}' if by else ''}, {mode}, {buckets}"
        for call in over.calls[0 if over.limit is None else 1 :]:
            yield f"  computes {call.text}"
        for condition in over.conditions:
            yield f"  filter before: {plain_sql(condition)}"
        kept = "the first rows of each partition" if self.kernel.keeps_first else "all rows not retracted"
        yield f"  state: {kept}; kept until {self._until()}"
        if self.weighted and not self.kernel.by_arrival:
            causes = [] if over.limit is None else ["it is displaced"]
            causes += ["a value of it changes"] if self.kernel.shown else []
            yield f"  a row is retracted (-1) when {' or '.join(causes)}"

    def _until(self) -> str:
        if self.closing is None:
            return "the end of input"
        key, after = plain_sql(self.closing.key.expression), self.closing.before_end
        end = f"{key} + {span_text(after, self.closing.unit)}" if after else key
        return f"the end of the partition <= frontier ({end})"


@dataclass(frozen=True, slots=True)
class OverPlan:
    """Window functions over the columns that travel; ``route`` are the hash columns that choose a row's bucket."""

    over: Over
    closing: Closing | None
    kernel: OverKernel
    route: tuple[str, ...]
    hashed: HashedKeys

    def operator(self, feed: Feed) -> OverOperator:
        """The operator over ``feed``."""
        kernel = replace(self.kernel, changes=feed.changelog, by_arrival=self.over.by_arrival and not feed.changelog)
        return OverOperator(
            name="over" if self.over.limit is None else "top_n",
            kernel=kernel,
            feeds=(feed,),
            routed_by=(self.route,),
            hashed=(self.hashed,),
            output=(*(name for name, _ in kernel.output), *kernel.shown),
            single_bucket=not self.route,
            weighted=not (kernel.final or kernel.once),
            gives_ids=kernel.gives_ids,
            over=self.over,
            closing=self.closing,
        )


def plan_over(query: LogicalQuery, mode: EmitMode, rows: AggregateRows, needed: frozenset[str]) -> OverPlan:
    """How window functions are computed over ``rows``; ``needed`` are the columns of the results.

    Raises ``UnsupportedError`` for what reads several streams and can be computed neither at a source nor by DuckDB.
    """
    over = query.over
    assert over is not None
    closing = closing_of(query)
    keys = rows.keys(over.partition)
    order = []
    for place, (term, descending) in enumerate(over.by):
        kind = type_of(term, rows.sources.columns)
        order.append((f"$o{place}", same_float(rows.sql(term, kind), arrow_type(kind)), descending))
    arguments: dict[str, str] = {}
    values = tuple(_value(call, arguments, rows) for call in over.calls)
    made = {call.name for call in over.calls}
    output = tuple((name, rows.column(name)) for name in sorted(needed - made))
    once = mode is EmitMode.FINAL and over.by_arrival
    final = mode is EmitMode.FINAL and not once
    kernel = OverKernel(
        keys=keys,
        order=tuple(order),
        arguments=tuple((name, sql) for sql, name in arguments.items()),
        values=values,
        output=output,
        shown=tuple(call.name for call in over.calls if call.shown),
        limit=None if over.limit is None else (over.calls[0].name, over.limit),
        reads_behind=over.reads_behind,
        where=rows.conditions(over.conditions),
        skipped=over.skipped,
        end=None if closing is None else closing.end(quote(closing.key.name)),
        final=final,
        once=once,
        gives_ids=query.inner and not (final or once),
    )
    return OverPlan(over, closing, kernel, *rows.route("$h_partition", over.partition))


def argument_names(call: OverCall, arguments: dict[str, str], rows: AggregateRows) -> list[str]:
    """The kept columns that a call reads, quoted; they are added to ``arguments``, by their SQL."""
    names = []
    for argument in call.arguments:
        kind = type_of(argument, rows.sources.columns)
        sql = same_float(rows.sql(argument, kind), arrow_type(kind))
        names.append(quote(arguments.setdefault(sql, f"$v{len(arguments)}_of")))
    return names


def _value(call: OverCall, arguments: dict[str, str], rows: AggregateRows) -> Value:
    """A value over kept columns."""
    sql = call.call.format(*argument_names(call, arguments, rows), over="{over}", order="{order}")
    frame = "" if call.frame is None else call.frame.sql
    return Value(call.name, sql, arrow_type(call.type), frame, call.tied)
