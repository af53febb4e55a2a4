"""Split each join's conditions into keys, a window and the rest, and bound how far its results' times may lag.

For each join, from the inside out:

    every condition of ON and WHERE      -> a key      (an equality of one input of each side)
                                         -> bounds     (an inequality over two event times, logical/time_bounds.py)
                                         -> residual   (anything else)
    the tightest pair of bounds          -> the window; the times of this pair lead, the other bounds are tested
                                            (WITHIN and what other joins imply are in the condition already)
    comparison with one event time       -> expiries, of a side without a bound: the last time of each row's partners
    window and known differences         -> lags: how far an event time in a result may lie behind the frontier

A join as of a time has no window: inequalities over times test the row that was picked.  A join of changing streams has
none either, since a row may be replaced at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.emission import emits_at_once
from watersmeet.plan.external_tables import require_key, table_of
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Differences, Interval
from watersmeet.plan.logical.tree import (
    AsofClause,
    Expiry,
    Input,
    InputColumn,
    Join,
    JoinCondition,
    Leaf,
    Node,
    changing,
    nullable,
    timed,
)
from watersmeet.plan.passes.condition_terms import ConditionTerms, Pair, split_conditions
from watersmeet.plan.passes.expiries import RowSide, expiry_of
from watersmeet.plan.passes.implied_windows import implied_windows

Leaders = tuple[tuple[int, ...], tuple[int, ...]]


def find_windows(query: LogicalQuery) -> LogicalQuery:
    """The query with the condition of every join split into keys, bounds and residual.

    Raises ``UnsupportedError`` for times that cannot be compared, ``PlanError`` for a window that is empty, and
    ``BindError`` for a lookup without a key.
    """
    return replace(query, root=_analyzed_tree(query.root, query))


def _analyzed_tree(node: Node, query: LogicalQuery) -> Node:
    """The tree with the condition of every join analysed, inner joins first."""
    if isinstance(node, Leaf):
        return node
    left, right = (_analyzed_tree(node.child(side), query) for side in Side)
    join = replace(node, left=left, right=right)
    join = replace(join, condition=_analyzed(join, query))
    if (table := table_of(join)) is not None:
        require_key(join, table)
    return join


def _analyzed(join: Join, query: LogicalQuery) -> JoinCondition:
    inputs, columns = query.inputs, query.columns
    terms = split_conditions(join, inputs, columns)
    if join.asof is not None:
        return _analyzed_asof(join, join.asof, terms, query)
    if changing(join):
        return _analyzed_changing(join, terms)
    _add_implied(join, terms, query)
    loose = {(i, j): interval for i, j, interval in join.condition.loose}
    implied = {(i, j): interval for i, j, interval in join.condition.implied}
    differences = _known(join.left).union(_known(join.right))
    for (i, j), interval in terms.bounds.items():
        differences.add(i, j, interval)
    there = _there(join, {i for pair in terms.bounds for i in pair})
    chosen, bounds = _choose(join, terms.bounds, loose, implied, differences, there)
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
    if chosen in terms.bounds or (chosen in implied and chosen not in loose):
        leaders: Leaders = ((chosen[0],), (chosen[1],))
    else:
        bounded = [{pair[side.index] for pair in loose} or timed(join.child(side)) for side in Side]
        leaders = (_leaders(join.left, chosen[0], bounded[0]), _leaders(join.right, chosen[1], bounded[1]))
    taken_from_several = any(len(each) > 1 for each in leaders)
    for (i, j), interval in loose.items():
        differences.add_loose(i, j, interval)
    if chosen in implied:
        differences.add(*chosen, bounds)  # the window is tested, so every pair of rows meets it
    differences = _closed(join, differences, there | {each[0] for each in leaders if len(each) == 1})
    if join.lets_pass:  # it lets left rows through that are near no right row
        differences = _known(join.left)
    expiries = (
        _expiries(join, Side.LEFT, bounds.upper, leaders, inputs, columns),
        _expiries(join, Side.RIGHT, bounds.lower, leaders, inputs, columns),
    )
    closes = all(bound is not None or each for bound, each in zip((bounds.upper, bounds.lower), expiries, strict=True))
    seconds = None if closes or table_of(join) is not None else query.settings.join_ttl
    ttl = None if seconds is None else round(seconds * 1_000_000)
    return JoinCondition(
        keys=tuple(terms.keys),
        residual=tuple(terms.residual),
        leaders=leaders,
        bounds=bounds,
        loose=tuple((*pair, interval) for pair, interval in loose.items() if pair != chosen or taken_from_several),
        exact=terms.exact(chosen),
        expiries=expiries,
        grace=join.condition.grace,
        ttl=ttl,
        lags=_lags(join, leaders, bounds, differences, ttl),
        differences=differences,
    )


def _add_implied(join: Join, terms: ConditionTerms, query: LogicalQuery) -> None:
    """Add the bounds that several conditions set together, where neither a bound nor an expiry does so alone.

    A join in which no two rows can match by the bounds stays as it is: a message about an empty window would name what
    nobody has written.
    """
    for pair, interval in implied_windows(join, query, query.inputs).items():
        known = terms.bounds.get(pair, Interval())
        leaders: Leaders = ((pair[0],), (pair[1],))
        left_ends, right_ends = (_expiries(join, side, None, leaders, query.inputs, query.columns) for side in Side)
        upper = interval.upper if known.upper is None and not left_ends else None
        lower = interval.lower if known.lower is None and not right_ends else None
        bounds = known.intersect(Interval(lower, upper))
        if bounds != known and not bounds.is_empty:
            terms.bounds[pair] = bounds


def _expiries(
    join: Join,
    side: Side,
    bound: int | None,
    leaders: Leaders,
    inputs: Sequence[Input],
    columns: Mapping[str, InputColumn],
) -> tuple[Expiry, ...]:
    """The expiries of the rows of a side; none where a ``bound`` that all of them share says how long they stay."""
    # to NOT IN, NULL matches whatever its time; rows of an external table have no event time
    if bound is not None or join.null_aware or table_of(join) is not None:
        return ()
    if any(len(each) > 1 for each in leaders):  # no single time to solve for, or to replace by the expiry
        return ()
    child = join.child(side)
    row = RowSide(child.visible, nullable(child))
    (partner,) = leaders[side.other.index]
    found = (expiry_of(condition, row, inputs[partner], columns) for condition in join.condition.residual)
    return tuple(each for each in found if each is not None)


def _analyzed_changing(join: Join, terms: ConditionTerms) -> JoinCondition:
    """Rows that may be replaced at any time have no window that closes: inequalities over times are conditions."""
    leaders = (tuple(sorted(timed(join.left))), tuple(sorted(timed(join.right))))
    return JoinCondition(
        keys=tuple(terms.keys),
        residual=tuple(terms.residual),
        leaders=leaders,
        bounds=Interval(),
        loose=join.condition.loose,
        exact=terms.exact(),
        grace=join.condition.grace,
        lags=dict.fromkeys(join.visible),
        differences=Differences(),
    )


def _analyzed_asof(
    join: Join,
    asof: AsofClause,
    terms: ConditionTerms,
    query: LogicalQuery,
) -> JoinCondition:
    """A join as of a time has no window: inequalities over times test the picked row, as WHERE does."""
    inputs, columns = query.inputs, query.columns
    is_keyed = asof.of_table and inputs[asof.right].entity_key is not None
    if not inputs[asof.right].stream.outside and not is_keyed:
        _check_keys(join, terms, columns)
    terms.residual += join.tests
    is_at_once = emits_at_once(query, asof)
    if asof.direction is not Direction.CURRENT:
        _check_units(join, (asof.left, asof.right), inputs)
    leaders: Leaders = ((asof.left,), (asof.right,))
    differences = _known(join.left).copy()
    if asof.direction is Direction.CURRENT or asof.at is not None:
        # times of rows do not select rows here, but every row must have one
        leaders = (_leaders(join.left, asof.left, timed(join.left)), (asof.right,))
        # a row that asks for another time than its own may wait for any time
        reach = Interval(upper=0) if asof.at is None or is_at_once else Interval()
    else:
        distance = _distance(asof)
        reach = distance
        if asof.direction is Direction.NEAREST and distance.lower is not None:
            # a left row waits until its latest possible partner; the one it gets may still lie before it
            reach = Interval(2 * distance.lower, distance.upper)
        differences.add(asof.left, asof.right, distance)
        differences = _closed(join, differences, _there(join, {asof.left}))
    lags = _lags(join, leaders, reach, differences)
    return JoinCondition(
        keys=tuple(terms.keys),
        residual=tuple(terms.residual),
        leaders=leaders,
        bounds=Interval(),
        loose=(),
        exact=terms.exact(),
        grace=join.condition.grace,
        lags={input: _plus(lag, asof.corrected) for input, lag in lags.items()},
        differences=differences,
    )


def _plus(lag: int | None, more: int | None) -> int | None:
    return None if lag is None or more is None else lag + more


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


def _there(join: Join, compared: Set[int]) -> frozenset[int]:
    """The inputs that rows have for certain where they match: ``compared`` ones, and those that no join below pads."""
    certain = (join.child(side).visible - nullable(join.child(side)) for side in Side)
    return frozenset().union(compared, *certain)


def _closed(join: Join, differences: Differences, there: Set[int]) -> Differences:
    """What is known of the results, from what is known of rows that match and have the inputs ``there``.

    A row that is emitted without a partner need not meet the join's condition.
    """
    closed = differences.copy()
    closed.close(there)
    for side in Side:
        if join.kind.emits_unmatched(side):
            inside = join.child(side).visible
            matched = {pair: interval for pair, interval in closed.known.items() if not inside.issuperset(pair)}
            closed = replace(closed, known={**matched, **_known(join.child(side)).known})
    return closed


def _choose(
    join: Join,
    bounds: Mapping[Pair, Interval],
    loose: Mapping[Pair, Interval],
    implied: Mapping[Pair, Interval],
    differences: Differences,
    there: Set[int],
) -> tuple[Pair, Interval]:
    """The pair of inputs whose times are the join's window, and that window; preferably one that is written."""
    derived = differences.copy()
    derived.close(there)
    missing = nullable(join.left) | nullable(join.right)

    def total(pair: Pair) -> Interval:
        found = derived.get(*pair)
        for each in (bounds, loose, implied):
            found = found.intersect(each.get(pair, Interval()))
        return found

    def rank(pair: Pair) -> tuple[bool, bool, bool, int, Pair]:
        absent = 0 if pair in bounds else sum(input in missing for input in pair)
        is_derived = pair not in bounds and pair not in loose
        return (not total(pair).is_bounded, total(pair).is_free, is_derived, absent, pair)

    pairs = {*bounds, *loose, *implied} or {(min(join.left.visible), min(join.right.visible))}
    chosen = min(pairs, key=rank)
    return chosen, total(chosen)


def _leaders(side: Node, first: int, bounded: Set[int]) -> tuple[int, ...]:
    """The inputs whose times lead: ``first``, then, if a row may lack it, all others that WITHIN bounds.

    A row that lacks all of them has no time, and matches nothing.
    """
    return (first, *sorted(bounded - {first})) if first in nullable(side) else (first,)


def _check_units(join: Join, pair: Pair, inputs: Sequence[Input]) -> None:
    rows = [inputs[each].time.unit is TimeUnit.ROWS for each in pair]
    if rows[0] != rows[1] and all(inputs[each].is_timed for each in pair):
        counting = inputs[pair[0] if rows[0] else pair[1]].alias
        raise UnsupportedError(
            f"{counting} counts rows (event_time_unit = 'row') and the other side has times: they cannot be joined",
            hint="give both streams the same kind of event time",
            position=join.position,
        )


def _lags(
    join: Join, leaders: Leaders, bounds: Interval, differences: Differences, ttl: int | None = None
) -> dict[int, int | None]:
    """How far each input's event time in results may lie behind the join's frontier; None: no bound.

    Stored left rows l meet new right rows r with r.t >= F and r.t - l.t <= upper, so l.t >= F - upper; the same for
    rows padded when final.  Without such a bound, rows older than ``ttl`` have left the join.  The time of any other
    input x of that side follows from what is known of its distance.
    """
    of_left = ttl if bounds.upper is None else max(bounds.upper, 0)
    of_right = ttl if bounds.lower is None else max(-bounds.lower, 0)
    lags: dict[int, int | None] = {}
    for side, lag in ((Side.LEFT, of_left), (Side.RIGHT, of_right)):
        for other in join.child(side).visible if join.kind.outputs(side) else ():
            behind = [0 if other == each else differences.direct(each, other).lower for each in leaders[side.index]]
            known = [each for each in behind if each is not None]
            unknown = lag is None or len(known) < len(behind)
            lags[other] = None if unknown else max((lag or 0) - min(known), 0)
    return lags
