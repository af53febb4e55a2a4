"""The first rows of each partition, planned: what orders them, how their bucket is chosen, and the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from watersmeet.engine.keys import HashedKeys, KeyColumn
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.aggregate.functions import same_float
from watersmeet.kernels.api import EmitMode
from watersmeet.kernels.top_n.kernel import Rank, TopN
from watersmeet.plan.aggregate_rows import AggregateRows
from watersmeet.plan.closing import Closing, closing_of
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import LogicalQuery, Ranking
from watersmeet.plan.operators.aggregate import end_sql
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TopNOperator(PhysicalOperator):
    """Keeps the first rows of each partition, or all of a changelog."""

    kernel: TopN
    ranking: Ranking
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
        """The rank."""
        return {} if self.kernel.shown is None else {self.kernel.shown: pa.int64()}

    def is_hybrid(self, settings: QuerySettings) -> bool:
        """As the setting for aggregates says."""
        return settings.default_hash_table == "hybrid"

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """The partition, the order and what is kept."""
        ranking = self.ranking
        partition = ", ".join(plain_sql(key.expression) for key in ranking.partition)
        by = ", ".join(plain_sql(term) + (" DESC" if descending else "") for term, descending in ranking.by)
        where = f"of each {partition}" if partition else "of all rows"
        mode = "EMIT FINAL: when a partition has ended" if self.kernel.final else "EMIT CHANGELOG"
        buckets = "one bucket" if self.single_bucket else "by hash of the partition"
        name = ranking.function.name
        yield f"{self.name}: the first {ranking.limit} rows {where} by {by} ({name}), {mode}, {buckets}"
        for condition in ranking.conditions:
            yield f"  filter before the rank: {plain_sql(condition)}"
        kept = "all rows not retracted" if self.kernel.changes else "the first rows of each partition"
        yield f"  state: {kept}; kept until {self._until()}"
        if not self.kernel.final:
            what = "displaced, or its rank changes" if self.kernel.shown is not None else "displaced"
            yield f"  a row is retracted (-1) when it is {what}"

    def _until(self) -> str:
        if self.closing is None:
            return "the end of input"
        key, after = plain_sql(self.closing.key.expression), self.closing.before_end
        end = f"{key} + {span_text(after, self.closing.unit)}" if after else key
        return f"the end of the partition <= frontier ({end})"


@dataclass(frozen=True, slots=True)
class TopNPlan:
    """The first rows over the columns that travel; ``route`` are the hash columns that choose a row's bucket."""

    ranking: Ranking
    closing: Closing | None
    kernel: TopN
    route: tuple[str, ...]
    hashed: HashedKeys

    def operator(self, feed: Feed) -> TopNOperator:
        """The operator over ``feed``."""
        kernel = replace(self.kernel, changes=feed.changelog)
        shown = () if kernel.shown is None else (kernel.shown,)
        return TopNOperator(
            name="top_n",
            kernel=kernel,
            feeds=(feed,),
            routed_by=(self.route,),
            hashed=(self.hashed,),
            output=(*(name for name, _ in kernel.output), *shown),
            single_bucket=not self.route,
            weighted=not kernel.final,
            gives_ids=kernel.gives_ids,
            ranking=self.ranking,
            closing=self.closing,
        )


def plan_top_n(query: LogicalQuery, mode: EmitMode, rows: AggregateRows, needed: frozenset[str]) -> TopNPlan:
    """How the first rows are computed over ``rows``; ``needed`` are the columns of the results.

    Raises ``UnsupportedError`` for what reads several streams and can be computed neither at a source nor by DuckDB.
    """
    ranking = query.ranking
    assert ranking is not None
    closing = closing_of(query)
    keys = []
    for key in ranking.partition:
        kind = arrow_type(key.type)
        keys.append((key.name, same_float(rows.sql(key.expression, key.type), kind), kind))
    order = []
    for place, (term, descending) in enumerate(ranking.by):
        kind = type_of(term, rows.sources.columns)
        order.append((f"$o{place}", same_float(rows.sql(term, kind), arrow_type(kind)), descending))
    shown = ranking.name if ranking.shown else None
    output = tuple((name, rows.column(name)) for name in sorted(needed - {ranking.name}))
    conditions = [rows.sql(condition, exp.DataType.build("BOOLEAN")) for condition in ranking.conditions]
    final = mode is EmitMode.FINAL
    hashes = rows.hashed("$h_partition", [key.expression for key in ranking.partition]) if keys else {}
    hashed = tuple(
        tuple(KeyColumn((keys[place][0],), arrow_type(kind)) for place, kind in parts) for parts in hashes.values()
    )
    kernel = TopN(
        keys=tuple(keys),
        order=tuple(order),
        output=output,
        rank=Rank[ranking.function.name],
        limit=ranking.limit,
        shown=shown,
        where=" AND ".join(conditions) or None,
        end=None if closing is None else end_sql(closing),
        final=final,
        gives_ids=query.inner and not final,
    )
    return TopNPlan(ranking, closing, kernel, tuple(hashes), hashed)
