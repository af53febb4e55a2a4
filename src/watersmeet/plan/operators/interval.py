"""Windowed joins of append-only inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import EmitMode, JoinKind, Side
from watersmeet.kernels.evicting.join import EvictingJoin
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.join_limits import limits_of
from watersmeet.plan.logical.tree import Join
from watersmeet.plan.operators.windowed import WindowedOperator, window_match
from watersmeet.plan.physical_plan import Feed, PhysicalPlan
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalOperator(WindowedOperator):
    """Inputs are append-only; EMIT CHANGELOG retracts a padded or anti row at its first match."""

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    def cut_by(self, number: int, *, is_of_results: bool) -> tuple[str, ...] | None:
        """Where rows are evicted, their keys: so rows that come together find each other in one step.

        How many rows are marked as matched depends on the cut, and marks count as state.  So the cut must follow from
        the rows alone, also without a key.
        """
        del is_of_results  # inputs are append-only
        return tuple(self.match.key_columns(tuple(Side)[number])) if isinstance(self.kernel, EvictingJoin) else None

    @property
    def passed_on(self) -> tuple[str, ...]:
        """Columns of results that no condition reads; where rows are evicted, their sizes are read."""
        return () if isinstance(self.kernel, EvictingJoin) else self.match.passed_on

    @property
    def gives_matches(self) -> bool:
        """Results of an inner join; other kinds count their matches themselves."""
        return self.match.kind is JoinKind.INNER

    @property
    def evicts_at_limit(self) -> bool:
        """As ``eviction`` says."""
        return isinstance(self.kernel, EvictingJoin) and self.kernel.limits.policy.evicts_at_limit

    @property
    def spreadable_sides(self) -> tuple[Side, ...]:
        """The sides whose rows of hot keys may be spread over the buckets (engine/hot_keys.py).

        Both inputs must be sources, and the window must bound the state.  The rows of the other side are copied to all
        buckets, so that side must never be emitted unmatched or as the result of a semi join.
        """
        if isinstance(self.kernel, EvictingJoin):  # the rows of a key are counted and evicted in one bucket
            return ()
        if self.single_bucket or self.match.lower is None or self.match.upper is None:
            return ()
        if not all(feed.source is not None and feed.holds_back for feed in self.feeds):
            return ()
        kind = self.match.kind
        return tuple(side for side in Side if kind.outputs(side) and not kind.emits_unmatched(side.other))

    def spread_rule(self, settings: QuerySettings) -> SpreadRule | None:
        """The sides to spread, and how far apart in time rows usually are: the window and the expected delay."""
        sides = self.spreadable_sides
        if not sides:
            return None
        assert self.match.lower is not None
        assert self.match.upper is not None
        reach = max(self.match.upper - self.match.lower + self.match.slack, 1)
        inputs = () if settings.skew == "keep" else tuple(side.index for side in sides)
        return SpreadRule(inputs, settings.skew_rows, reach)

    def skew_lines(self, plan: PhysicalPlan) -> Iterator[str]:
        """From how many rows a key is hot, and which side is spread."""
        settings = plan.query.settings
        sides = self.spreadable_sides
        if not sides or settings.skew == "keep" or settings.buckets == 1:
            return
        names = [name.value for name, side in zip(Side, self.sides, strict=True) if side in sides]
        which = "the side that has more of them" if len(names) > 1 else f"the {names[0]} side"
        unset = "" if settings.skew else ", but not in a DataFrame, unless skew = 'spread'"
        many = f"{settings.skew_rows:,} rows in a batch"
        yield f"  a key with {many}: those of {which} are spread over all buckets{unset}"


def plan_interval(context: JoinContext, feeds: Sequence[Feed]) -> IntervalOperator:
    """The operator of a windowed join of append-only inputs."""
    match = window_match(context, feeds)
    retracts = context.emission.mode is EmitMode.CHANGELOG and context.join.kind.retracts
    gives_ids = retracts and not context.is_last
    join = IntervalJoin(match, EmitMode.CHANGELOG if retracts else EmitMode.FINAL, gives_ids)
    limits = limits_of(context.query, context.emission, context.labels)
    return IntervalOperator(
        name=context.name,
        kernel=join if limits is None else EvictingJoin(join, limits),
        feeds=tuple(feeds),
        routed_by=context.terms.routes,
        hashed=context.terms.hashed,
        output=match.output,
        single_bucket=context.single_bucket,
        weighted=retracts,
        gives_ids=gives_ids,
        match=match,
        mirrored=context.join.mirrored,
        null_aware=context.join.null_aware,
        stays_while=(_stays_while(context.join, Side.LEFT), _stays_while(context.join, Side.RIGHT)),
    )


def _stays_while(join: Join, side: Side) -> str:
    return " AND ".join(plain_sql(each.condition) for each in join.condition.expiries[side.index])
