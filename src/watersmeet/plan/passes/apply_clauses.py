"""Give every join the WITHIN, the GRACE PERIOD, the ALLOWED LATENESS and the table_retention that apply to it.

A clause on the last join of FROM also applies to the joins that have none.  A WITHIN becomes bounds between pairs of
inputs, which no longer depend on the order of the joins; they apply where neither time is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.columns import TP_TIME
from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import Side
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import NO_GRACE, Grace, Input, Join, Leaf, Node, Within, joins_of, met_in_time
from watersmeet.plan.passes.condition_terms import Pair
from watersmeet.plan.table_retention import with_retention


def apply_clauses(query: LogicalQuery) -> LogicalQuery:
    """The query with the bounds of WITHIN and the grace in the condition of each join.

    Raises ``UnsupportedError`` for WITHIN over inputs that count rows, and ``PlanError`` for WITHIN between a time of
    arrival and an event time.
    """
    from_clause = [join for join in joins_of(query.root) if not join.from_subquery]
    return replace(query, root=_Clauses(query, from_clause, _windows(from_clause)).node(query.root))


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
class _Clauses:
    """What the conditions are completed from."""

    query: LogicalQuery
    from_clause: Sequence[Join]
    windows: Mapping[Join, tuple[Within, bool]]

    def node(self, node: Node) -> Node:
        """The tree with complete conditions, inner joins first."""
        if isinstance(node, Leaf):
            return node
        left, right = self.node(node.left), self.node(node.right)
        bounds = self._pairs(node, *self.windows[node]) if node in self.windows else {}
        loose = tuple((*pair, interval) for pair, interval in bounds.items())
        condition = replace(node.condition, loose=loose, grace=self._grace(node))
        asof = None if node.asof is None else with_retention(node.asof, self.query)
        return replace(node, left=left, right=right, condition=condition, asof=asof)

    def _grace(self, join: Join) -> Grace:
        """What a join says itself, else the last join of FROM, else the settings."""
        last = NO_GRACE if join.from_subquery else self.from_clause[-1].grace
        by_default = round((self.query.settings.allowed_lateness or 0) * 1_000_000)
        return Grace(join.grace.period or last.period, join.grace.lateness or last.lateness or by_default)

    def _pairs(self, join: Join, within: Within, trailing: bool) -> dict[Pair, Interval]:
        """The bounds that WITHIN puts on pairs of inputs."""
        inputs = self.query.inputs
        interval = Interval(-within.before, within.after)
        left, right = (sorted(met_in_time(join.child(join.written(side)))) for side in Side)
        if not trailing:
            residual = join.condition.residual
            named = {i for condition in residual for i in inputs_of(condition, self.query.columns)} & set(left)
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
