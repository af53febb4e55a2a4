"""Split each join's conditions into keys, a window and the rest, and bound how far its results' times may lag.

For each join, from the inside out:

    every WITHIN that applies            -> bounds between pairs of inputs, where neither time is NULL ("loose")
    every condition of ON and WHERE      -> a key      (an equality of one input of each side)
                                         -> bounds     (an inequality over two event times, logical/time_bounds.py)
                                         -> residual   (anything else)
    the tightest pair of bounds          -> the window; the times of this pair lead, the other bounds are tested
    window and known differences         -> lags: how far an event time in a result may lie behind the frontier

A join as of a time has no window: inequalities over times test the row that was picked.  A join of changing streams has
none either, since a row may be replaced at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.columns import TP_TIME
from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.external_tables import require_key, table_of
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Differences, Interval
from watersmeet.plan.logical.tree import (
    AsofClause,
    Input,
    InputColumn,
    Join,
    JoinCondition,
    Leaf,
    Node,
    Within,
    changing,
    joins_of,
    met_in_time,
    nullable,
    timed,
)
from watersmeet.plan.passes.condition_terms import ConditionTerms, Pair, split_conditions

Leaders = tuple[tuple[int, ...], tuple[int, ...]]


def find_windows(query: LogicalQuery) -> LogicalQuery:
    """The query with the condition of every join split into keys, bounds and residual.

    Raises ``UnsupportedError`` for times that cannot be compared, ``PlanError`` for a window that is empty, and
    ``BindError`` for a lookup without a key.
    """
    from_clause = [join for join in joins_of(query.root) if not join.from_subquery]
    return replace(query, root=_Analysis(query, from_clause, _windows(from_clause)).node(query.root))


def _windows(from_clause: list[Join]) -> dict[Join, tuple[Within, bool]]:
    """For each join its WITHIN, and whether that is one at the end of a chain, which applies between every pair.

    A WITHIN on the last join of FROM applies to those that have none; where every join has its own, it applies to the
    last one alone.  Joins as of a time take none.  Joins that came from EXISTS and IN have their windows in the
    subquery.
    """
    windowed = [join for join in from_clause if join.asof is None]
    trailing = windowed[-1].within if windowed else None
    is_trailing = any(join.within is None for join in windowed)
    found = {}
    for join in windowed:
        if join.within is not None:
            found[join] = (join.within, is_trailing and join is windowed[-1])
        elif trailing is not None:
            found[join] = (trailing, True)
    return found


@dataclass(frozen=True, slots=True)
class _Analysis:
    """What the analysis of one join may look up."""

    query: LogicalQuery
    from_clause: Sequence[Join]
    windows: Mapping[Join, tuple[Within, bool]]

    def node(self, node: Node) -> Node:
        """The tree with the condition of every join analysed, inner joins first."""
        if isinstance(node, Leaf):
            return node
        # a GRACE PERIOD on the last join of FROM applies to those that have none, as a WITHIN there does
        grace = node.grace if node.from_subquery else node.grace or self.from_clause[-1].grace
        join = replace(node, left=self.node(node.left), right=self.node(node.right))
        found = _analyzed(join, self.windows.get(node), grace, self.query.inputs, self.query.columns)
        join = replace(join, condition=found)
        if (table := table_of(join)) is not None:
            require_key(join, table)
        return join


def _analyzed(
    join: Join,
    window: tuple[Within, bool] | None,
    grace: int,
    inputs: Sequence[Input],
    columns: Mapping[str, InputColumn],
) -> JoinCondition:
    terms = split_conditions(join, inputs, columns)
    if join.asof is not None:
        return _analyzed_asof(join, join.asof, terms, grace, inputs, columns)
    loose = _window_pairs(join, *window, inputs=inputs, columns=columns) if window is not None else {}
    if changing(join):
        return _analyzed_changing(join, terms, loose, grace)
    differences = _known(join.left).union(_known(join.right))
    for (i, j), interval in terms.bounds.items():
        differences.add(i, j, interval)
    chosen, bounds = _choose(join, terms.bounds, loose, differences)
    _check_units(join, chosen, inputs)
    if bounds.is_empty:
        unit = inputs[chosen[0]].time.unit
        written = bounds.negated() if join.mirrored else bounds
        least, most = ("" if each is None else span_text(each, unit) for each in (written.lower, written.upper))
        raise PlanError(
            "the window of this join is empty: no two rows can ever match",
            detail=f"{least} <= right time - left time <= {most}",
            position=join.position,
        )
    if chosen in terms.bounds:
        leaders: Leaders = ((chosen[0],), (chosen[1],))
    else:
        bounded = [{pair[side.index] for pair in loose} or timed(join.child(side)) for side in Side]
        leaders = (_leaders(join.left, chosen[0], bounded[0]), _leaders(join.right, chosen[1], bounded[1]))
    taken_from_several = any(len(each) > 1 for each in leaders)
    for (i, j), interval in loose.items():
        differences.add_loose(i, j, interval)
    differences.close()
    if not join.kind.pairs and join.keeps(Side.LEFT):  # results may be left rows that are near no right row
        differences = _known(join.left)
    return JoinCondition(
        keys=tuple(terms.keys),
        residual=tuple(terms.residual),
        leaders=leaders,
        bounds=bounds,
        loose=tuple((*pair, interval) for pair, interval in loose.items() if pair != chosen or taken_from_several),
        exact=terms.exact(chosen),
        grace=grace,
        lags=_lags(join, leaders, bounds, differences),
        differences=differences,
    )


def _analyzed_changing(join: Join, terms: ConditionTerms, loose: dict[Pair, Interval], grace: int) -> JoinCondition:
    """Rows that may be replaced at any time have no window that closes: inequalities over times are conditions."""
    leaders = (tuple(sorted(timed(join.left))), tuple(sorted(timed(join.right))))
    return JoinCondition(
        keys=tuple(terms.keys),
        residual=tuple(terms.residual),
        leaders=leaders,
        bounds=Interval(),
        loose=tuple((*pair, interval) for pair, interval in loose.items()),
        exact=terms.exact(),
        grace=grace,
        lags=dict.fromkeys(join.visible),
        differences=Differences(),
    )


def _analyzed_asof(
    join: Join,
    asof: AsofClause,
    terms: ConditionTerms,
    grace: int,
    inputs: Sequence[Input],
    columns: Mapping[str, InputColumn],
) -> JoinCondition:
    """A join as of a time has no window: inequalities over times test the picked row, as WHERE does."""
    if not inputs[asof.right].stream.outside and not (asof.of_table and inputs[asof.right].stream.changes):
        _check_keys(join, terms, columns)
    terms.residual += join.tests
    leaders: Leaders = ((asof.left,), (asof.right,))
    differences = _known(join.left).copy()
    if asof.direction is Direction.CURRENT:
        # times do not select rows here, but every row must have one
        leaders = (_leaders(join.left, asof.left, timed(join.left)), (asof.right,))
        reach = Interval(upper=0)
    else:
        _check_units(join, (asof.left, asof.right), inputs)
        distance = _distance(asof)
        reach = distance
        if asof.direction is Direction.NEAREST and distance.lower is not None:
            # a left row waits until its latest possible partner; the one it gets may still lie before it
            reach = Interval(2 * distance.lower, distance.upper)
        differences.add(asof.left, asof.right, distance)
        differences.close()
    return JoinCondition(
        keys=tuple(terms.keys),
        residual=tuple(terms.residual),
        leaders=leaders,
        bounds=Interval(),
        loose=(),
        exact=terms.exact(),
        grace=grace,
        lags=_lags(join, leaders, reach, differences),
        differences=differences,
    )


def _distance(asof: AsofClause) -> Interval:
    """How far the right row's time may lie from the left one's."""
    behind = None if asof.tolerance is None else -asof.tolerance
    lower = 0 if asof.direction is Direction.FORWARD else behind
    return Interval(lower, 0 if asof.direction is Direction.BACKWARD else asof.tolerance)


def _check_keys(join: Join, terms: ConditionTerms, columns: Mapping[str, InputColumn]) -> None:
    """Refuse an equality across the sides that cannot be a key: it would test the picked row instead of choosing it."""
    left, right = join.left.inputs, join.right.inputs
    for condition in terms.residual:
        if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
            continue
        one, other = (inputs_of(operand, columns) for operand in (condition.this, condition.expression))
        if one and other and ((one <= left and other <= right) or (one <= right and other <= left)):
            raise UnsupportedError(
                f"{plain_sql(condition)} cannot be a key of a join as of a time: it is not computed over one stream"
                " whose rows are always there",
                hint="compute it in a CREATE STREAM … AS first, or compare a column as it is",
                position=position_of(condition) or join.position,
            )


def _known(node: Node) -> Differences:
    return node.condition.differences if isinstance(node, Join) else Differences()


def _window_pairs(
    join: Join, within: Within, trailing: bool, *, inputs: Sequence[Input], columns: Mapping[str, InputColumn]
) -> dict[Pair, Interval]:
    """The bounds that WITHIN puts on pairs of inputs."""
    interval = Interval(-within.before, within.after)
    left, right = (sorted(met_in_time(join.child(join.written(side)))) for side in Side)
    if not trailing:
        named = {i for condition in join.condition.residual for i in inputs_of(condition, columns)} & set(left)
        left = sorted(named) or left
    for i in (*left, *right):
        if inputs[i].time.unit is TimeUnit.ROWS:
            raise UnsupportedError(
                f"WITHIN is a length of time, but {inputs[i].alias} counts rows (event_time_unit = 'row')",
                hint="write the window as inequalities: a.sn >= b.sn AND a.sn < b.sn + 10",
                position=within.position or join.position,
            )
    _refuse_arrival(within, join, [inputs[i] for i in (*left, *right)])
    if join.mirrored:
        return {(j, i): interval.negated() for i in left for j in right}
    return {(i, j): interval for i in left for j in right}


def _refuse_arrival(within: Within, join: Join, met: list[Input]) -> None:
    """Refuse WITHIN between a time of arrival and an event time: a replay would change which rows match."""
    arrived = next((input for input in met if input.time.column == TP_TIME), None)
    happened = next((input for input in met if input.time.column != TP_TIME), None)
    if arrived is not None and happened is not None:
        raise PlanError(
            f"{arrived.stream.name} ({arrived.alias}) has no watermark: WITHIN would compare when its rows arrive with"
            f" {happened.alias}.{happened.time.column}",
            hint="declare its event time: WATERMARK FOR column AS column - INTERVAL '…'; where arrival is meant, write"
            f" the window as inequalities over {arrived.alias}.{TP_TIME}",
            position=within.position or join.position,
        )


def _choose(
    join: Join, bounds: dict[Pair, Interval], loose: dict[Pair, Interval], differences: Differences
) -> tuple[Pair, Interval]:
    """The pair of inputs whose times are the join's window, and that window."""
    derived = differences.copy()
    derived.close()
    missing = nullable(join.left) | nullable(join.right)

    def total(pair: Pair) -> Interval:
        direct = bounds.get(pair, Interval()).intersect(loose.get(pair, Interval()))
        return direct.intersect(derived.get(*pair))

    def rank(pair: Pair) -> tuple[bool, bool, int, Pair]:
        absent = 0 if pair in bounds else sum(input in missing for input in pair)
        return (not total(pair).is_bounded, total(pair).is_free, absent, pair)

    pairs = {*bounds, *loose} or {(min(join.left.visible), min(join.right.visible))}
    chosen = min(pairs, key=rank)
    return chosen, total(chosen)


def _leaders(side: Node, first: int, bounded: Set[int]) -> tuple[int, ...]:
    """The inputs whose times lead: ``first``, then, if a row may lack it, all others that WITHIN bounds.

    A row that lacks all of them has no time, and matches nothing.
    """
    return (first, *sorted(bounded - {first})) if first in nullable(side) else (first,)


def _check_units(join: Join, pair: Pair, inputs: Sequence[Input]) -> None:
    rows = [inputs[each].time.unit is TimeUnit.ROWS for each in pair]
    if rows[0] != rows[1]:
        counting = inputs[pair[0] if rows[0] else pair[1]].alias
        raise UnsupportedError(
            f"{counting} counts rows (event_time_unit = 'row') and the other side has times: they cannot be joined",
            hint="give both streams the same kind of event time",
            position=join.position,
        )


def _lags(join: Join, leaders: Leaders, bounds: Interval, differences: Differences) -> dict[int, int | None]:
    """How far each input's event time in results may lie behind the join's frontier; None: no bound.

    Stored left rows l meet new right rows r with r.t >= F and r.t - l.t <= upper, so l.t >= F - upper; the same for
    rows padded when final.  The time of any other input x of that side follows from what is known of its distance.
    """
    of_left = None if bounds.upper is None else max(bounds.upper, 0)
    of_right = None if bounds.lower is None else max(-bounds.lower, 0)
    lags: dict[int, int | None] = {}
    for side, lag in ((Side.LEFT, of_left), (Side.RIGHT, of_right)):
        for other in join.child(side).visible if join.kind.outputs(side) else ():
            behind = [0 if other == each else differences.direct(each, other).lower for each in leaders[side.index]]
            known = [each for each in behind if each is not None]
            unknown = lag is None or len(known) < len(behind)
            lags[other] = None if unknown else max((lag or 0) - min(known), 0)
    return lags
