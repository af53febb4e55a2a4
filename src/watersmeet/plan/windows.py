"""Of each join: its keys, its window, and how far the times of its results lie behind its frontier."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.plan.bounds import Differences, Interval, time_bounds
from watersmeet.plan.logical import Input, JoinNode, KeyPair, Leaf, Node, PhysicalColumn, inputs_of, joins_of, nullable
from watersmeet.plan.times import TimeUnit, interval_micros
from watersmeet.plan.typing import common_key_type, type_of
from watersmeet.sql.nodes import Within
from watersmeet.sql.positions import position_of


def analyse(root: Node, inputs: list[Input], columns: dict[str, PhysicalColumn]) -> None:
    """Fill in keys, window, residual and lags of every join of the tree.

    Raises ``UnsupportedError`` for times that cannot be compared and ``PlanError`` for a window that is empty.
    """
    joins = list(joins_of(root))
    windows = _windows(joins)
    _spread_grace(joins)
    for join in joins:
        _analyse_join(join, windows.get(id(join)), inputs, columns)


def _windows(joins: list[JoinNode]) -> dict[int, tuple[Within, bool]]:
    """For each join its WITHIN, and whether that is one at the end of a chain, which holds between every pair.

    A WITHIN on the last join of FROM stands in for those that have none; where every join has its own, it is the last
    one's own too.  Joins that came from EXISTS and IN have their windows in the subquery.
    """
    from_clause = [join for join in joins if not join.from_subquery]
    trailing = from_clause[-1].within if from_clause else None
    is_trailing = any(join.within is None for join in from_clause)
    found = {}
    for join in from_clause:
        if join.within is not None:
            found[id(join)] = (join.within, is_trailing and join is from_clause[-1])
        elif trailing is not None:
            found[id(join)] = (trailing, True)
    return found


def _spread_grace(joins: list[JoinNode]) -> None:
    """A GRACE PERIOD on the last join of FROM stands in for those that have none, as a WITHIN there does."""
    from_clause = [join for join in joins if not join.from_subquery]
    for join in from_clause:
        join.grace = join.grace or from_clause[-1].grace


def _analyse_join(
    join: JoinNode, window: tuple[Within, bool] | None, inputs: list[Input], columns: dict[str, PhysicalColumn]
) -> None:
    left, right = join.left.visible, join.right.visible
    differences = _known(join.left).copy()
    differences.known.update(_known(join.right).known)
    differences.loose.update(_known(join.right).loose)
    bounds: dict[tuple[int, int], Interval] = {}
    conditions: dict[tuple[int, int], list[exp.Expr]] = {}

    def times(column: exp.Column) -> tuple[int, int, bool] | None:
        known = columns.get(column.name)
        if known is None or known.column.lower() != inputs[known.input].time.column.lower():
            return None
        unit = inputs[known.input].time.unit
        return known.input, unit.scale, unit.is_integer

    for condition in join.conditions:
        key = None if join.null_aware else _as_key(condition, join, columns)
        found = time_bounds(condition, times)
        if found is not None and _across(found[0], left, right):
            (i, j), interval = found
            i, j, interval = (i, j, interval) if i in left else (j, i, interval.negated())
            bounds[i, j] = bounds.get((i, j), Interval()).intersect(interval)
            conditions.setdefault((i, j), []).append(condition)
            differences.add(i, j, interval)
        elif key is not None:
            join.keys.append(key)
        else:
            join.residual.append(condition)
    loose: dict[tuple[int, int], Interval] = {}
    if window is not None:
        loose = _window_pairs(join, *window, inputs=inputs, columns=columns)
    _choose(join, bounds, conditions, loose, differences, inputs)
    differences.close()
    join.differences = differences
    join.lags = _lags(join, differences)


def _known(node: Node) -> Differences:
    return node.differences if isinstance(node, JoinNode) else Differences()


def _across(pair: tuple[int, int], left: frozenset[int], right: frozenset[int]) -> bool:
    i, j = pair
    return (i in left and j in right) or (j in left and i in right)


def _as_key(condition: exp.Expr, join: JoinNode, columns: dict[str, PhysicalColumn]) -> KeyPair | None:
    """The condition as an equality of one input of the left side and one of the right side."""
    if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
        return None
    one, other = condition.this.unnest(), condition.expression.unnest()
    of_one, of_other = inputs_of(one, columns), inputs_of(other, columns)
    if len(of_one) != 1 or len(of_other) != 1:
        return None
    if of_one <= join.right.inputs and of_other <= join.left.inputs:
        one, other, of_one, of_other = other, one, of_other, of_one
    if not (of_one <= join.left.inputs and of_other <= join.right.inputs):
        return None
    kind = common_key_type(type_of(one, columns), type_of(other, columns), condition)
    return KeyPair(one, other, isinstance(condition, exp.NullSafeEQ), kind)


def _window_pairs(
    join: JoinNode, within: Within, trailing: bool, *, inputs: list[Input], columns: dict[str, PhysicalColumn]
) -> dict[tuple[int, int], Interval]:
    """What WITHIN says: bounds of (right time - left time) for pairs of inputs."""
    interval = Interval(-interval_micros(within.this), interval_micros(within.expression))
    right = sorted(join.right.visible)
    left = sorted(join.left.visible)
    if not trailing:
        named = {i for condition in join.conditions for i in inputs_of(condition, columns)} & set(left)
        left = sorted(named) or left
    for i in (*left, *right):
        if inputs[i].time.unit is TimeUnit.ROWS:
            raise UnsupportedError(
                f"WITHIN is a length of time, but {inputs[i].alias} counts rows (event_time_unit = 'row')",
                hint="write the window as inequalities: a.sn >= b.sn AND a.sn < b.sn + 10",
                position=position_of(within) or join.position,
            )
    return {(i, j): interval for i in left for j in right}


def _choose(
    join: JoinNode,
    bounds: dict[tuple[int, int], Interval],
    conditions: dict[tuple[int, int], list[exp.Expr]],
    loose: dict[tuple[int, int], Interval],
    differences: Differences,
    inputs: list[Input],
) -> None:
    """Choose the pair of times that is the join's window; what the others say becomes a condition of its own."""
    pairs = {*bounds, *loose} or {(min(join.left.visible), min(join.right.visible))}
    derived = differences.copy()
    derived.close()

    def total(pair: tuple[int, int]) -> Interval:
        direct = bounds.get(pair, Interval()).intersect(loose.get(pair, Interval()))
        return direct.intersect(derived.get(*pair))

    missing = nullable(join.left) | nullable(join.right)

    def rank(pair: tuple[int, int]) -> tuple[bool, bool, int, tuple[int, int]]:
        absent = 0 if pair in bounds else sum(input in missing for input in pair)
        return (not total(pair).is_bounded, total(pair).is_free, absent, pair)

    chosen = min(pairs, key=rank)
    join.time_inputs = chosen
    join.bounds = total(chosen)
    if chosen not in bounds:
        join.fallbacks = (_fallbacks(join.left, chosen[0]), _fallbacks(join.right, chosen[1]))
    _check_units(join, inputs)
    if join.bounds.is_empty:
        raise PlanError(
            "the window of this join is empty: no two rows can ever match",
            detail=f"{join.bounds.lower} <= right time - left time <= {join.bounds.upper}",
            position=join.position,
        )
    for pair, terms in conditions.items():
        if pair != chosen:
            join.residual.extend(terms)
    taken_from_several = any(join.fallbacks)
    join.loose = [(i, j, interval) for (i, j), interval in loose.items() if (i, j) != chosen or taken_from_several]
    for (i, j), interval in loose.items():
        differences.add_loose(i, j, interval)


def _fallbacks(side: Node, leader: int) -> tuple[int, ...]:
    """The inputs whose times stand in for the leader's where a padded row lacks it."""
    return tuple(sorted(side.visible - {leader})) if leader in nullable(side) else ()


def _check_units(join: JoinNode, inputs: list[Input]) -> None:
    i, j = join.time_inputs
    rows = [inputs[each].time.unit is TimeUnit.ROWS for each in (i, j)]
    if rows[0] != rows[1]:
        counting = inputs[i if rows[0] else j].alias
        raise UnsupportedError(
            f"{counting} counts rows (event_time_unit = 'row') and the other side has times: they cannot be joined",
            hint="give both streams the same kind of event time",
            position=join.position,
        )


def _lags(join: JoinNode, differences: Differences) -> dict[int, int | None]:
    """How far an input's event time in results may lie behind the join's frontier; None: there is no bound.

    Stored left rows l meet new right rows r with r.t >= F and r.t - l.t <= upper, so l.t >= F - upper; the same for
    rows padded when final.  The time of any other input x of that side follows from what is known of its distance.
    """
    of_left = None if join.bounds.upper is None else max(join.bounds.upper, 0)
    of_right = None if join.bounds.lower is None else max(-join.bounds.lower, 0)
    lags: dict[int, int | None] = {}
    for which, (side, lag) in enumerate(((join.left, of_left), (join.right, of_right))):
        leaders = (join.time_inputs[which], *join.fallbacks[which])
        for other in side.visible if side.visible <= join.visible else ():
            behind = [0 if other == leader else differences.direct(leader, other).lower for leader in leaders]
            known = [each for each in behind if each is not None]
            unknown = lag is None or len(known) < len(behind)
            lags[other] = None if unknown else max((lag or 0) - min(known), 0)
    return lags


def lag_of(node: Node, input: int) -> int | None:
    """How far an input's event time may lie behind the frontier that ``node`` sends."""
    return 0 if isinstance(node, Leaf) else node.lags.get(input)


def latest_lag(node: Node, inputs: Iterable[int]) -> int | None:
    """How far the furthest behind of some inputs' event times may lie; None where one of them has no bound."""
    lags = [lag_of(node, input) for input in inputs]
    known = [lag for lag in lags if lag is not None]
    return max(known) if len(known) == len(lags) else None


def unbounded_sides(joins: Iterable[JoinNode]) -> list[tuple[JoinNode, str]]:
    """Joins and sides whose rows would have to be kept for ever."""
    found = []
    for join in joins:
        # a side whose times have no frontier holds the join back, and with it the other side's rows
        stuck = any(
            latest_lag(side, (leader, *others)) is None
            for side, leader, others in zip((join.left, join.right), join.time_inputs, join.fallbacks, strict=True)
        )
        if join.bounds.upper is None or stuck:
            found.append((join, "left"))
        if join.bounds.lower is None or stuck:
            found.append((join, "right"))
    return found
