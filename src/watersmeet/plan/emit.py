"""EMIT FINAL or EMIT CHANGELOG: what was asked, what is possible, and what bounds the state.

FINAL where the query has a bound or needs no corrections (an inner or semi join of append-only streams), else
CHANGELOG.  Where rows would have to be kept for ever, a limit on the state's bytes must stand in.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.errors import PlanError, Position, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import EmitMode, Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.query import AsofClause, Input, JoinNode, LogicalQuery, changing, joins_of
from watersmeet.plan.windows import lag_of, unbounded_sides, waits_for_ever

LIMIT_SETTING = "join_max_buffered_bytes"
DEFAULT_LIMIT = 512 * 1024 * 1024


def decide_emit(query: LogicalQuery, asked: EmitMode | None, position: Position | None) -> None:
    """Set the query's emit mode, the reason for it, and its limit of state bytes.

    Raises ``PlanError`` where EMIT FINAL is asked of a join without a bound and no limit is given, and
    ``UnsupportedError`` for ORDER BY in a changelog or over a join without a bound.
    """
    joins = list(joins_of(query.root))
    unbounded = unbounded_sides(joins)
    limit = query.settings.join_max_buffered_bytes
    if asked is EmitMode.FINAL and query.aggregation is not None:
        raise _aggregated(position)
    if asked is EmitMode.FINAL and (corrected := changing(query.root)):
        raise _corrected(corrected[0], position)
    if asked is EmitMode.FINAL and unbounded and limit is None:
        raise _unbounded(query, unbounded)
    if asked is not None:
        query.emit, query.emit_reason = asked, f"EMIT {asked.name} was asked for"
    elif query.aggregation is not None:
        query.emit, query.emit_reason = EmitMode.CHANGELOG, "an aggregate changes with the rows of its group"
    elif corrected := changing(query.root):
        query.emit, query.emit_reason = EmitMode.CHANGELOG, f"rows of {corrected[0].stream.name} change"
    elif not unbounded:
        query.emit, query.emit_reason = EmitMode.FINAL, _final_reason(query, joins)
    elif not any(join.kind.retracts for join in joins):
        query.emit, query.emit_reason = EmitMode.FINAL, "no result ever needs a correction"
    else:
        query.emit, query.emit_reason = EmitMode.CHANGELOG, "a join without a window can never be final"
    if unbounded or any(waits_for_ever(join) for join in joins):
        query.max_state_bytes = limit if limit is not None else DEFAULT_LIMIT
    else:
        query.max_state_bytes = limit
    _check_ordering(query, position)


def _final_reason(query: LogicalQuery, joins: Sequence[JoinNode]) -> str:
    if not joins:
        return "each row gives its result at once"
    as_of = [join.asof for join in joins if join.asof is not None]
    if not as_of:
        return "every join has a window"
    if not all(join_at_once(query, each) for each in as_of):
        return "rows wait until their partner is known"
    windowed = len(as_of) < len(joins)
    return "every other join has a window" if windowed else "rows are joined at once, and never revised"


def join_at_once(query: LogicalQuery, asof: AsofClause) -> bool:
    """Whether a join as of a time gives its results at once and never revises them."""
    without_wait = asof.of_table and query.settings.temporal_wait == "none"
    return asof.direction is Direction.CURRENT or without_wait


def check_wait(query: LogicalQuery, position: Position | None) -> None:
    """Raise ``PlanError`` where ``temporal_wait = 'none'`` finds no join that would wait."""
    if query.settings.temporal_wait != "none":
        return
    if query.emit is EmitMode.CHANGELOG:
        raise PlanError(
            "temporal_wait = 'none' is for EMIT FINAL: a changelog gives its results at once, and corrects them",
            hint="leave it out, or use EMIT FINAL",
            position=position,
        )
    if not any(join.asof is not None and join.asof.of_table for join in joins_of(query.root)):
        raise PlanError(
            "temporal_wait = 'none', but no join here is FOR SYSTEM_TIME AS OF", hint="leave it out", position=position
        )


def _check_ordering(query: LogicalQuery, position: Position | None) -> None:
    if query.ordering is None:
        return
    if query.emit is EmitMode.CHANGELOG:
        raise UnsupportedError(
            "ORDER BY gives rows once they are final; a changelog corrects rows that were given",
            hint="leave out ORDER BY, or use EMIT FINAL",
            position=position or query.ordering.position,
        )
    if lag_of(query.root, query.ordering.input) is None:
        raise UnsupportedError(
            "ORDER BY over a join without a window would wait for ever",
            hint="add WITHIN to the join, or to a MATCH_CONDITION a tolerance",
            position=query.ordering.position,
        )


def _corrected(input: Input, position: Position | None) -> UnsupportedError:
    stream = input.stream
    return UnsupportedError(
        f"EMIT FINAL: the rows of {stream.name} change (mode {stream.mode.value}), so any result may have to be"
        " corrected",
        hint="leave out EMIT FINAL, or use EMIT CHANGELOG and a sink that takes corrections",
        position=position,
    )


def _aggregated(position: Position | None) -> UnsupportedError:
    return UnsupportedError(
        "EMIT FINAL: an aggregate changes with every row of its group, so it is never final",
        hint="leave out EMIT FINAL, or use EMIT CHANGELOG and a sink that takes corrections",
        position=position,
    )


def _unbounded(query: LogicalQuery, found: Sequence[tuple[JoinNode, Side]]) -> PlanError:
    join, side = found[0]
    sides = " and ".join(
        f"the {each.value} side ({', '.join(query.inputs[i].alias for i in sorted(join.child(each).visible))})"
        for of, each in found
        if of is join
    )
    own, other = (query.inputs[join.analysis.leaders[each.index][0]].alias for each in (side, side.other))
    return PlanError(
        f"EMIT FINAL cannot bound the state of {sides}: a partner may come at any later time",
        detail=_missing_watermark(query, join) or f"nothing says how long a row of {own} waits for one of {other}",
        hint="add WITHIN INTERVAL '…' to the join (or inequalities over both event times), use EMIT CHANGELOG, "
        f"or set a limit with SETTINGS {LIMIT_SETTING} = …",
        position=join.position,
    )


def _missing_watermark(query: LogicalQuery, join: JoinNode) -> str | None:
    """Where an inequality stands over a column that is not an event time: which side lacks a watermark on it."""
    for condition in join.analysis.residual:
        if not isinstance(condition, exp.Between | exp.LT | exp.LTE | exp.GT | exp.GTE):
            continue
        for column in condition.find_all(exp.Column):
            known = query.columns.get(column.name)
            if known is None:
                continue
            input = query.inputs[known.input]
            timelike = known.type.is_type(*exp.DataType.TEMPORAL_TYPES) or known.type.is_type(
                *exp.DataType.INTEGER_TYPES
            )
            if timelike and not input.is_time(known.column):
                where = f" ({position})" if (position := position_of(column)) else ""
                return (
                    f"{input.alias}.{known.column}{where} has no watermark: the event time of {input.stream.name} is "
                    f"{input.time.column}; declare WATERMARK FOR {known.column} AS {known.column} - INTERVAL '…'"
                )
    return None
