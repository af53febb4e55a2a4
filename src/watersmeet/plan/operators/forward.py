"""A query over one append-only stream: rows pass unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from watersmeet.columns import ID, WEIGHT
from watersmeet.kernels.forward import Forward
from watersmeet.plan.logical.tree import NO_GRACE, Input
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOperator(PhysicalOperator):
    """Stores nothing; no row is late."""

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def passes_any_time(self) -> bool:
        """Always."""
        return True

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """One line."""
        yield f"{self.name}: rows pass unchanged"


def plan_forward(input: Input, needed: Iterable[str], sources: Sources) -> ForwardOperator:
    """The operator of a query over one append-only stream; ``needed`` are the columns of its results."""
    output = tuple(sorted(needed)) or (input.time_name,)
    sources.require(input, output, routed_by=(), grace=NO_GRACE)
    hidden = (WEIGHT, ID) if input.changes else ()
    lag = 0 if input.is_timed else None
    feed = Feed((input.time_name,), sources.number(input), lag=lag, slack=sources.delay(input), changelog=input.changes)
    return ForwardOperator(
        name="forward",
        kernel=Forward((*output, *hidden), input.time_name),
        feeds=(feed,),
        routed_by=((),),
        output=output,
        single_bucket=True,
        weighted=input.changes,
        gives_ids=input.changes,
    )
