"""Windowed joins of append-only inputs whose results come in the order of one side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.kernels.api import Side
from watersmeet.kernels.sliding import WAITING, SlidingJoin, wait_for_partners
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Join, timed
from watersmeet.plan.operators.interval import IntervalOperator
from watersmeet.plan.operators.ordered import Ties, order_columns
from watersmeet.plan.operators.windowed import reaches_of, window_match
from watersmeet.plan.passes.slide_joins import is_in_order
from watersmeet.plan.physical_plan import Feed
from watersmeet.plan.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingOperator(IntervalOperator):
    """Inputs are append-only, and results final."""

    kernel: SlidingJoin
    time: str  # the probe side's, as users write it
    is_whole: bool  # whether results of all buckets are in order, there being one

    @property
    def waiting(self) -> tuple[str, ...]:
        """Probe rows."""
        return (WAITING,)

    @property
    def reaches(self) -> dict[Side, int | None]:
        """Probe rows stay while they wait for partners; build rows stay that much longer."""
        found, probe = reaches_of(self.match), self.kernel.probe
        wait, build = found[probe], found[probe.other]
        assert wait is not None
        assert build is not None
        return {probe: max(wait, 0), probe.other: build + max(wait, 0)}

    def order_lines(self, declared: Sequence[str]) -> Iterator[str]:
        """By what results are ordered, and which are outside the order."""
        del declared
        probe = self.kernel.probe
        outside = ""
        if self.match.kind.emits_unmatched(probe.other):
            side = dict(zip(self.sides, Side, strict=True))[probe.other]
            outside = f"; rows of the {side.value} side without a partner are outside it"
        where = " within a bucket" if self.kernel.order and not self.is_whole else ""
        yield f"  sliding: results in order of {self.time}{where}, once all partners are there{outside}"


def sliding_order(join: Join, query: LogicalQuery, sources: Sources) -> Ties:
    """What orders the results of a sliding join: time and positions, the probe side's first, or the terms of ORDER BY.

    Nothing where the operator that follows orders them anyway.
    """
    assert join.probe is not None
    if query.ordering is not None and join is query.root:
        time, ties = order_columns(query, sources)
        return ((time, False), *ties) if is_in_order(query) else ()
    names = []
    for side in (join.probe, join.probe.other):
        if join.kind.outputs(side):
            names.append(query.inputs[join.condition.leaders[side.index][0]].time_name)
            names += [query.inputs[i].physical("$seq") for i in sorted(timed(join.child(side)))]
    return tuple((name, False) for name in names)


def plan_sliding(context: JoinContext, feeds: Sequence[Feed]) -> SlidingOperator:
    """The operator of a sliding join."""
    assert context.join.probe is not None
    probe, match = context.join.probe, window_match(context, feeds)
    feeds = [replace(feed, late_by_own=True) for feed in feeds]
    build = probe.other.index
    feeds[build] = replace(feeds[build], waited_for=wait_for_partners(match, probe))
    leader = context.query.inputs[context.join.condition.leaders[probe.index][0]]
    order = sliding_order(context.join, context.query, context.sources)
    return SlidingOperator(
        name=context.name,
        kernel=SlidingJoin(match, probe, order),
        time=f"{leader.alias}.{leader.time.column}",
        is_whole=context.single_bucket or context.query.settings.buckets == 1,
        feeds=tuple(feeds),
        routed_by=context.terms.routes,
        hashed=context.terms.hashed,
        output=(*match.left.output, *match.right.output),
        single_bucket=context.single_bucket,
        match=match,
        mirrored=context.join.mirrored,
    )
