"""What windowed joins share, whether their inputs only append (interval.py) or change (changelog.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.expressions.event_time import span_text
from watersmeet.kernels.api import EmitMode, Side
from watersmeet.kernels.expiring_match import ExpiringMatch
from watersmeet.kernels.lasting_match import LastingMatch
from watersmeet.kernels.match import MatchOrAlternative, WindowMatch, fields_of
from watersmeet.plan.explain_phrases import input_of, key_lines, plain_condition, window_text
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedOperator(PhysicalOperator):
    """A join of rows with equal keys whose times lie within a window."""

    match: WindowMatch
    mirrored: bool = False  # RIGHT SEMI or RIGHT ANTI: the kernel's left side is the right one of the text
    stays_while: tuple[str, str] = ("", "")  # by the kernel's sides: conditions while which a row stays; empty: none
    null_aware: bool = False  # NOT IN

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """The type of the mark."""
        return {} if self.match.mark is None else {self.match.mark.name: pa.bool_()}

    @property
    def sides(self) -> tuple[Side, Side]:
        """The kernel's sides in the order of the text."""
        return (Side.RIGHT, Side.LEFT) if self.mirrored else (Side.LEFT, Side.RIGHT)

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """Kind, keys, window, condition, and what bounds the state of each side; all as the text has it."""
        match = self.match
        buckets = "one bucket (no key)" if self.single_bucket else "by key hash"
        kind = f"right {match.kind.value}" if self.mirrored else match.kind.value
        yield f"{self.name}: {kind} join, {self._results(plan)}, {buckets}"
        yield from key_lines(match.keys, self.sides)
        inputs = {side: input_of(feed.times[0], plan) for side, feed in zip(Side, self.feeds, strict=True)}
        window = Interval(match.lower, match.upper)
        left, right = (inputs[side] for side in self.sides)
        if window.is_free and any(self.stays_while):
            yield "  window set by the rows themselves"
        else:
            yield f"  window {window_text(window.negated() if self.mirrored else window, left, right)}"
        if match.residual is not None:
            yield f"  condition in the kernel: {plain_condition(match.residual, mirrored=self.mirrored)}"
        if isinstance(match, MatchOrAlternative) and match.alternative is not None:
            condition = plain_condition(match.alternative).removeprefix(f"{Side.LEFT.alias}.")  # of a mark
            yield f"  left rows that meet {condition} are emitted at once{self.passing_text()}"
        if match.mark is not None:
            partner = "no partner" if match.mark.negated else "a partner"
            wait = "" if self.weighted else "; those without one once their window has passed"
            yield f"  all left rows go on, with {match.mark.name}: whether they have {partner}{wait}"
        stuck = self._without_frontier(plan)
        for name, side in zip(Side, self.sides, strict=True):
            bound = None if stuck else self.reaches[side]
            reach = None if bound is None else span_text(max(bound, 0), inputs[side].time.unit)
            yield f"  state of the {name.value} side: {stuck or self.state_text(side, reach, inputs[side.other])}"
        declared = [f"{input.alias}.{input.time.column}" for input in (left, right) if input.dated_by is not None]
        yield from self.order_lines(declared)
        yield from self.skew_lines(plan)
        if retractions := list(self.retraction_texts()):
            yield f"  results are emitted at once; {', '.join(retractions)}"

    @property
    def reaches(self) -> dict[Side, int | None]:
        """How far behind the frontier rows of a side stay (None: no bound)."""
        return reaches_of(self.match)

    def state_text(self, side: Side, reach: str | None, partner: Input) -> str:
        """What is kept of a side, at most ``reach`` behind the frontier (None: without a bound)."""
        if isinstance(self.match, LastingMatch) and self.match.lasts(side):
            age = span_text(self.match.ttl, partner.time.unit)
            return f"rows up to {age} behind the frontier, by join_ttl: their partners may come later, and find nothing"
        if reach is not None:
            return f"rows up to {reach} behind the frontier"
        if condition := self.stays_while[side.index]:
            return f"each row while {condition} can still hold"
        if self.null_aware:
            return "kept until the end of input: to NOT IN, NULL matches whatever the times"
        time = f"{partner.alias}.{partner.time.column}"
        return f"kept until the end of input: no condition bounds {time} from above by this side alone"

    def _without_frontier(self, plan: PhysicalPlan) -> str:
        """Why no row is ever released: an input has results of another join, of any age.  Empty: none has."""
        for feed in self.feeds:
            if feed.operator is not None and feed.lag is None and not feed.changelog:
                input = input_of(feed.times[0], plan)
                sender = plan.operators[feed.operator].name
                time = f"{input.alias}.{input.time.column}"
                return f"kept until the end of input: {sender} may give rows of any {time}, however long ago"
        return ""

    def passing_text(self) -> str:
        """What becomes of left rows that are results whatever their partners, once they are emitted."""
        return ", whatever their partners, and not stored"

    def order_lines(self, declared: Sequence[str]) -> Iterator[str]:
        """What becomes of the order of the inputs; ``declared``: their times that are declared orders."""
        if declared:
            yield f"  results are not in order of {' or '.join(declared)}: each comes with its later row"

    def skew_lines(self, plan: PhysicalPlan) -> Iterator[str]:
        """What is done about hot keys."""
        return iter(())

    def retraction_texts(self) -> Iterator[str]:
        """When results are retracted."""
        if self.weighted and self.match.kind.retracts:
            again = ", and given with the other mark" if self.match.mark is not None else ""
            yield f"a {'padded ' if self.match.kind.pairs else ''}row is retracted at its first partner{again}"

    def _results(self, plan: PhysicalPlan) -> str:
        append_only = plan.emission.mode is EmitMode.CHANGELOG and not self.weighted
        return "append-only" if append_only else f"EMIT {plan.emission.mode.value}"


def reaches_of(match: WindowMatch) -> dict[Side, int | None]:
    """How far behind the frontier a row of a side may have a partner (None: no bound)."""
    return {Side.LEFT: match.upper, Side.RIGHT: None if match.lower is None else -match.lower}


def window_match(context: JoinContext, feeds: Sequence[Feed]) -> WindowMatch:
    """When two rows of a windowed join match."""
    condition = context.join.condition
    match = WindowMatch(
        kind=context.join.kind,
        left=context.side_columns(Side.LEFT, feeds[0]),
        right=context.side_columns(Side.RIGHT, feeds[1]),
        keys=context.terms.keys,
        lower=condition.bounds.lower,
        upper=condition.bounds.upper,
        residual=context.residual_sql(),
        slack=max(feed.slack for feed in feeds),
        mark=context.join.mark,
    )
    alternative = context.alternative_sql()
    expiries = context.expiry_sql(Side.LEFT), context.expiry_sql(Side.RIGHT)
    times = feeds[0].times[0], feeds[1].times[0]
    if condition.ttl is not None:
        return LastingMatch(
            **fields_of(match),
            alternative=alternative,
            expiries=expiries,
            times=times,
            ttl=condition.ttl,
            names=context.labels,
        )
    if expiries != (None, None):
        return ExpiringMatch(**fields_of(match), alternative=alternative, expiries=expiries, times=times)
    return match if alternative is None else MatchOrAlternative(**fields_of(match), alternative=alternative)
