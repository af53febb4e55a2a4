"""Inner and left joins of three append-only streams and more, in one operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.expressions.event_time import span_text
from watersmeet.kernels.api import quote
from watersmeet.kernels.multi_way.join import MultiWayJoin
from watersmeet.kernels.multi_way.match import Bound, JoinedInput, MultiWayMatch, Term
from watersmeet.kernels.multi_way.probe_orders import Order
from watersmeet.kernels.multi_way.statistics import Statistics
from watersmeet.plan.across_sides import render
from watersmeet.plan.explain_phrases import input_of, plain_name, window_text
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Input, JoinGroup, Leaf
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import quoted_column
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiWayOperator(PhysicalOperator):
    """All inputs are sources; no result is ever retracted."""

    kernel: MultiWayJoin

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """Streams, keys, windows, conditions, and what bounds the state of each stream."""
        yield from self.explain_join(plan)
        for joined in self.kernel.match.inputs:
            input = input_of(joined.time, plan)
            yield f"  state of {input.alias}: {state_text(input, joined.reach)}"
        yield from self.explain_orders(plan)
        yield from self._skew_lines(plan)

    def explain_join(self, plan: PhysicalPlan) -> Iterator[str]:
        """Streams, keys, windows and conditions."""
        match = self.kernel.match
        inputs = [input_of(each.time, plan) for each in match.inputs]
        yield f"{self.name}: {self._kinds([each.alias for each in inputs])} in one operator, by key hash"
        for number, null_safe in enumerate(match.null_safe):
            columns = (plain_name(each.keys[number]) for each in match.inputs)
            yield f"  key {(' <=> ' if null_safe else ' = ').join(columns)}"
        for bound in match.bounds:
            yield f"  window {window_text(Interval(bound.lower, bound.upper), inputs[bound.left], inputs[bound.right])}"
        for term in match.terms:
            yield f"  condition in the kernel: {plain_name(term.sql)}"

    def explain_orders(self, plan: PhysicalPlan) -> Iterator[str]:
        """The orders in which the first new rows probe."""
        if not self.kernel.match.pads:
            orders = ", ".join(self._path(plan, each) for each in _first_orders(self.kernel.match))
            yield f"  probe orders: {orders} by windows; chosen anew by rates and matches per key as rows come"

    def explain_run(self, plan: PhysicalPlan, counters: Mapping[str, int]) -> Iterator[str]:
        """The probe orders of the last batch, and the partial results on their way."""
        for name, rows in sorted(counters.items()):
            operator, counter, *path = name.split(".", 2)
            if (operator, counter) == (self.name, "sampled") and rows:
                inputs = [int(each) for each in path[0].split(">")]
                probes = []
                for probe, input in enumerate(inputs[1:-1], 1):
                    counted = (
                        counters.get(f"{self.name}.{what}.{path[0]}.{probe}", 0) for what in ("found", "expected")
                    )
                    found, expected = (each / rows for each in counted)
                    unit = " partial results a row" if probe == 1 else ""
                    probes.append(f"{found:.3g}{unit} after {self.alias(plan, input)} ({expected:.3g} expected)")
                order = self._path(plan, inputs)
                yield f"  probe order {order}: {', '.join(probes)}; measured over {rows:,} rows"

    def _path(self, plan: PhysicalPlan, inputs: Iterable[int]) -> str:
        return " > ".join(self.alias(plan, input) for input in inputs)

    def alias(self, plan: PhysicalPlan, input: int) -> str:
        """What the query calls an input of the join."""
        return input_of(self.kernel.match.inputs[input].time, plan).alias

    def _kinds(self, names: Sequence[str]) -> str:
        match = self.kernel.match
        if not match.pads:
            return f"inner join of {', '.join(names)}"
        kinds = ("left join" if input.optional else "inner join" for input in match.inputs[1:])
        return " ".join([names[0], *(f"{kind} {name}" for kind, name in zip(kinds, names[1:], strict=True))])

    def spread_rule(self, settings: QuerySettings) -> SpreadRule | None:
        """Rows of a hot key of one input may be spread, if all windows are bounded; those of the others are copied.

        Where a result may lack some inputs, only rows of the first are spread: a copy of one would be padded.
        """
        reaches = [each.reach for each in self.kernel.match.inputs if each.reach is not None]
        if len(reaches) < len(self.feeds):
            return None
        spreadable = (0,) if self.kernel.match.pads else tuple(range(len(self.feeds)))
        inputs = () if settings.skew == "keep" else spreadable
        return SpreadRule(inputs, settings.skew_rows, max(2 * max(reaches) + self.kernel.match.slack, 1))

    def _skew_lines(self, plan: PhysicalPlan) -> Iterator[str]:
        settings = plan.query.settings
        rule = self.spread_rule(settings)
        if rule is None or not rule.inputs or settings.buckets == 1:
            return
        unset = "" if settings.skew else ", but not in a DataFrame, unless skew = 'spread'"
        many = f"{settings.skew_rows:,} rows in a batch"
        which = "the stream that has most of them" if len(rule.inputs) > 1 else "the first stream"
        yield f"  a key with {many}: those of {which} are spread over all buckets{unset}"


def plan_multi_way(context: JoinContext, group: JoinGroup) -> MultiWayOperator:
    """The operator of a group of joins; its sources are asked for what it needs."""
    sources, terms = context.sources, context.terms
    inputs, feeds, output = [], [], []
    for number, index in enumerate(group.inputs):
        input = context.query.inputs[index]
        results = sources.of_side(context.needed, Leaf(input))
        columns = {*results, *terms.common[number], *_condition_columns(context, Leaf(input))}
        sources.require(input, columns, routed_by=terms.routes[number], grace=group.graces[number])
        stored = tuple(sorted(columns - {input.time_name}))
        optional = index in group.optional
        inputs.append(JoinedInput(input.time_name, terms.common[number], stored, group.reaches[index], optional))
        feeds.append(Feed((input.time_name,), source=sources.number(input), lag=0, slack=sources.delay(input)))
        output += sorted(results)
    match = MultiWayMatch(
        inputs=tuple(inputs),
        null_safe=tuple(key.null_safe for key in group.keys),
        bounds=tuple(_bounds(group)),
        terms=tuple(_terms(context, group)),
        output=tuple(output),
        slack=max(feed.slack for feed in feeds),
    )
    return MultiWayOperator(
        name=context.name,
        kernel=MultiWayJoin(match),
        feeds=tuple(feeds),
        routed_by=terms.routes,
        hashed=terms.hashed,
        output=match.output,
        single_bucket=False,
    )


def _condition_columns(context: JoinContext, leaf: Leaf) -> set[str]:
    """The columns of an input that the group's conditions read, beside its common keys."""
    read = {name for key in context.terms.keys for name in (key.left, key.right)}
    for term in context.terms.residual:
        read |= context.sources.carried_names(term)
    return context.sources.of_side(read, leaf)


def _bounds(group: JoinGroup) -> Iterator[Bound]:
    for (left, i), (right, j) in combinations(enumerate(group.inputs), 2):
        if not (known := group.differences.get(i, j)).is_free:
            yield Bound(left, right, known.lower, known.upper)
        if (loose := group.differences.loose.get((i, j))) is not None:
            yield Bound(left, right, loose.lower, loose.upper, loose=True)


def _terms(context: JoinContext, group: JoinGroup) -> Iterator[Term]:
    """Equalities beside the common keys, and all other conditions."""
    sources, inputs = context.sources, context.query.inputs
    place = {input: number for number, input in enumerate(group.inputs)}
    for pair, key in zip(group.pairs, context.terms.keys, strict=True):
        equals = "IS NOT DISTINCT FROM" if key.null_safe else "="
        read = inputs_of(pair.left, sources.columns) | inputs_of(pair.right, sources.columns)
        yield Term(tuple(sorted(place[i] for i in read)), f"{quote(key.left)} {equals} {quote(key.right)}")

    def column(name: str) -> exp.Expr:
        return sources.value(name, lambda input: quoted_column(inputs[input].time_name))

    for owner, condition in zip(context.terms.owners, context.terms.residual, strict=True):
        read = inputs_of(condition, sources.columns)
        if group.optional:
            read |= owner.right.inputs
        yield Term(tuple(sorted(place[i] for i in read)), render(condition, column))


def _first_orders(match: MultiWayMatch) -> Iterator[Order]:
    """Each input with the order in which its rows probe the others as long as nothing is known of rows."""
    for input, order in enumerate(Statistics.of(match, {}).orders):
        yield (input, *order)


def state_text(input: Input, reach: int | None) -> str:
    """How long the rows of an input stay."""
    if reach is None:
        return "kept until the end of input"
    return f"rows up to {span_text(max(reach, 0), input.time.unit)} behind the frontier"
