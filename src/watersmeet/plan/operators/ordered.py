"""ORDER BY: results wait until they are final, and are emitted in order of event time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.kernels.ordered import WAITING, OrderedEmit
from watersmeet.plan.explain_phrases import input_of
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import NO_GRACE, Input, timed
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import Sources

Ties = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedOperator(PhysicalOperator):
    """Keeps rows in one bucket until the frontier has passed them."""

    kernel: OrderedEmit

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def waiting(self) -> tuple[str, ...]:
        """The rows that are not final."""
        return (WAITING,)

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """One line."""
        input = input_of(self.kernel.time, plan)
        sorting = "sorted where they do not arrive so" if self.feeds[0].source is not None else "sorted"
        yield f"{self.name}: rows in order of {input.alias}.{input.time.column}, once final; {sorting}; one bucket"


def order_columns(query: LogicalQuery, sources: Sources) -> tuple[str, Ties]:
    """The event time that orders the results, and what breaks ties: ORDER BY, then the positions in the sources."""
    assert query.ordering is not None
    time = query.inputs[query.ordering.input].time_name
    ties = [(_carried(expression, sources), descending) for expression, descending in query.ordering.ties]
    ties += [(query.inputs[i].physical("$seq"), False) for i in sorted(timed(query.root))]
    return time, tuple(tie for tie in ties if tie[0] != time)  # rows of one time do not differ in it


def _carried(expression: exp.Expr, sources: Sources) -> str:
    """The column that holds a term; what is computed is computed at its source."""
    if isinstance(expression, exp.Column):
        return sources.carried_name(expression)
    (input,) = inputs_of(expression, sources.columns)
    return sources.carried(input, expression).name


def plan_ordered_source(query: LogicalQuery, input: Input, needed: Iterable[str], sources: Sources) -> OrderedOperator:
    """The operator of ORDER BY over a stream alone."""
    time, ties = order_columns(query, sources)
    columns = {*needed, time, *(name for name, _ in ties)}
    sources.require(input, columns, routed_by=(), grace=NO_GRACE)
    feed = Feed((time,), source=sources.number(input), slack=sources.delay(input))
    return _operator(feed, columns, time, ties, needed)


def plan_ordered(
    query: LogicalQuery, below: PhysicalOperator, number: int, needed: Iterable[str], sources: Sources
) -> OrderedOperator:
    """The operator of ORDER BY after ``below``, operator ``number`` of the plan."""
    assert query.ordering is not None
    time, ties = order_columns(query, sources)
    lag = lag_of(query.root, query.ordering.input)
    assert lag is not None  # decide_emission has checked it
    return _operator(Feed((time,), operator=number, lag=lag, slack=lag), below.output, time, ties, needed)


def _operator(feed: Feed, columns: Iterable[str], time: str, ties: Ties, needed: Iterable[str]) -> OrderedOperator:
    """The operator; columns that are no ties break what ties are left."""
    rest = tuple((name, False) for name in sorted(set(columns) - {time}))
    output = tuple(sorted(needed))
    return OrderedOperator(
        name="order",
        kernel=OrderedEmit(output, time, (*ties, *rest)),
        feeds=(feed,),
        routed_by=((),),
        output=output,
        single_bucket=True,
    )
