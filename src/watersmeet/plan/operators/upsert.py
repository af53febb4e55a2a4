"""A changing stream on its own: each change of a key's newest row, as retraction and new row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.columns import TIME
from watersmeet.engine.keys import KeyColumn
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.kernels.upsert import Upsert
from watersmeet.plan.explain_phrases import newest_text
from watersmeet.plan.logical.tree import NO_GRACE, Input
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import Sources, quoted_column


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertOperator(PhysicalOperator):
    """Keeps the newest row of each key."""

    kernel: Upsert

    @property
    def takes_pieces(self) -> bool:
        """Always: which row of a key holds depends on the rows alone."""
        return True

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """What is kept."""
        yield f"{self.name}: {newest_text(self.kernel.newest)}, as -old and +new; by key hash"


def plan_upsert(input: Input, needed: Iterable[str], sources: Sources) -> UpsertOperator:
    """The operator that turns a changing stream into a changelog; ``needed`` are the columns of its results."""
    newest = sources.newest(input)
    output = tuple(sorted(needed)) or (input.time_name,)
    keys = [quoted_column(input.physical(name)) for name in input.stream.primary_key]
    route = sources.hash(input.index, "$h_key", keys)
    sources.require(input, {*output, *newest.columns}, routed_by=(route,), grace=NO_GRACE)
    feed = Feed(
        (input.time_name,),
        source=sources.number(input),
        lag=lag_of_changes(input),
        slack=sources.delay(input),
    )
    return UpsertOperator(
        name=f"upsert_{input.index + 1}",
        kernel=Upsert(newest, output, input.time_name),
        feeds=(feed,),
        routed_by=((route,),),
        hashed=((tuple(_key_column(input, name, sources) for name in input.stream.primary_key),),),
        output=output,
        single_bucket=False,
        weighted=True,
        gives_ids=True,
    )


def _key_column(input: Input, name: str, sources: Sources) -> KeyColumn:
    """Where stored rows have a column of the primary key; it may be the event time, which is stored as ``$t``."""
    column = input.stream.column(name)
    assert column is not None
    kind = arrow_type(exp.DataType.build(column.type, dialect="spark"))
    physical = input.physical(name)
    is_time = sources.is_time(physical)
    return KeyColumn((TIME if is_time else physical,), kind, input.time.unit.scale if is_time else 1)


def lag_of_changes(input: Input) -> int | None:
    """The lag of a changing stream's rows: none are late, unless a WATERMARK is declared."""
    return 0 if input.time.declared else None
