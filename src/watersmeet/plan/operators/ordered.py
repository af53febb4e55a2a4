"""ORDER BY: results wait until they are final, and are emitted in order of event time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from watersmeet.kernels.ordered import OrderedEmit
from watersmeet.plan.explain_phrases import plain_name
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import timed
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import Sources

Ties = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedOperator(PhysicalOperator):
    """Keeps rows in one bucket until the frontier has passed them."""

    kernel: OrderedEmit

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """One line."""
        yield f"{self.name}: rows in order of {plain_name(self.kernel.time)}, once final; one bucket"


def order_columns(query: LogicalQuery, sources: Sources) -> tuple[str, Ties]:
    """The event time that orders the results, and what breaks ties: ORDER BY, then the positions in the sources."""
    assert query.ordering is not None
    time = query.inputs[query.ordering.input].time_name
    ties = [(sources.carried_name(expression), descending) for expression, descending in query.ordering.ties]
    ties += [(query.inputs[i].physical("$seq"), False) for i in sorted(timed(query.root))]
    return time, tuple(ties)


def plan_ordered(
    query: LogicalQuery, below: PhysicalOperator, number: int, needed: Iterable[str], sources: Sources
) -> OrderedOperator:
    """The operator after ``below``, operator ``number`` of the plan; remaining columns break what ties are left."""
    assert query.ordering is not None
    time, ties = order_columns(query, sources)
    rest = tuple((name, False) for name in sorted(set(below.output) - {time}))
    lag = lag_of(query.root, query.ordering.input)
    assert lag is not None  # decide_emission has checked it
    output = tuple(sorted(needed))
    return OrderedOperator(
        name="order",
        kernel=OrderedEmit(output, time, (*ties, *rest)),
        feeds=(Feed((time,), operator=number, lag=lag, slack=lag),),
        routed_by=((),),
        output=output,
        single_bucket=True,
    )
