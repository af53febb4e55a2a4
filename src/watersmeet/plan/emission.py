"""EMIT FINAL or EMIT CHANGELOG: what the query asks for, what is possible, and what bounds the state.

The default is FINAL where every join has a bound or no result needs a correction (an inner or semi join of append-only
streams), otherwise CHANGELOG.  Where rows would have to be kept forever, a limit on the state's bytes takes the place
of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import PlanError, Position, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import EmitMode, Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan import table_retention
from watersmeet.plan.allowed_lateness import correcting_join, final_refused
from watersmeet.plan.closing import closing_of
from watersmeet.plan.in_time import InTime, in_time, obstacle
from watersmeet.plan.logical.lags import lag_of, unbounded_sides, waits_forever
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import AsofClause, Input, Join, changing, joins_of, operators_of
from watersmeet.plan.table_retention import corrected_join

LIMIT_SETTING = "join_max_buffered_bytes"
DEFAULT_LIMIT = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Emission:
    """When a query emits, the reason, and its limit of state bytes (None: no limit)."""

    mode: EmitMode
    reason: str
    max_state_bytes: int | None


def decide_emission(query: LogicalQuery) -> Emission:
    """The emit mode of a query and its limit of state bytes.

    Raises ``PlanError`` for EMIT FINAL over a join without a bound or a limit, and for ``temporal_wait = 'none'``
    without a join that would wait; ``UnsupportedError`` for EMIT FINAL of results that change, and for ORDER BY in a
    changelog or over a join without a bound.
    """
    joins = list(operators_of(query.root))
    unbounded = unbounded_sides(joins)
    if query.sessions is not None:
        return Emission(EmitMode.FINAL, "a row is final once its session has ended", None)
    mode, reason = _requested(query, unbounded) or _default(query, joins, is_bounded=not unbounded)
    limit = query.settings.join_max_buffered_bytes
    over = query.over
    keeps_all = over is not None and over.limit is None and mode is EmitMode.CHANGELOG and closing_of(query) is None
    if limit is None and (unbounded or keeps_all or any(waits_forever(join) for join in joins)):
        limit = DEFAULT_LIMIT
    _check_ordering(query, mode)
    _check_wait(query, mode)
    return Emission(mode, reason, limit)


def final_in_time(query: LogicalQuery) -> InTime | None:
    """The event time with which each row's window functions are final, if the query emits them so."""
    if query.over is None or closing_of(query) is not None or decide_emission(query).mode is EmitMode.CHANGELOG:
        return None
    return in_time(query)


def emits_at_once(query: LogicalQuery, asof: AsofClause) -> bool:
    """Whether a join as of a time emits each result at once and never revises it."""
    if asof.direction is Direction.CURRENT:
        return asof.corrected == 0
    return asof.of_table and query.settings.temporal_wait == "none"


def waits_for_table(query: LogicalQuery, asof: AsofClause) -> bool:
    """Whether the right side of a join as of a time holds back the operator's frontier."""
    return asof.direction is not Direction.CURRENT and not emits_at_once(query, asof)


def _requested(query: LogicalQuery, unbounded: Sequence[tuple[Join, Side]]) -> tuple[EmitMode, str] | None:
    """The mode that EMIT names, if it can be had; None without EMIT."""
    asked, position = query.text.emit, query.text.emit_position
    if asked is None:
        return None
    if asked is EmitMode.FINAL:
        if not (query.is_plain or _takes_first(query)):
            if closing_of(query) is None and not is_distinct(query) and in_time(query) is None:
                raise _never_final(query, position)
        elif corrected := changing(query.root):
            raise _corrected(corrected[0], position)
        if unbounded and query.settings.join_max_buffered_bytes is None:
            raise _unbounded(query, unbounded)
        if (late := _corrected_late(query)) is not None:
            raise final_refused(late, query)
        if (join := corrected_join(query.root)) is not None:
            raise table_retention.final_refused(join, query)
    return asked, f"EMIT {asked.name} was asked for"


def _default(query: LogicalQuery, joins: Sequence[Join], *, is_bounded: bool) -> tuple[EmitMode, str]:
    """The mode of a query without EMIT, and the reason."""
    if not (query.is_plain or _takes_first(query)):
        return _default_above(query, is_bounded=is_bounded)
    if corrected := changing(query.root):
        return EmitMode.CHANGELOG, f"rows of {corrected[0].stream.name} change"
    if _corrected_late(query) is not None:
        return EmitMode.CHANGELOG, "late rows correct results"
    if corrected_join(query.root) is not None:
        return EmitMode.CHANGELOG, f"changes of tables correct results ({table_retention.SETTING})"
    if is_bounded:
        return EmitMode.FINAL, _final_reason(query, joins)
    if not any(join.kind.retracts for join in joins):
        return EmitMode.FINAL, "no result ever needs a correction"
    return EmitMode.CHANGELOG, "a join without a window can never be final"


def _default_above(query: LogicalQuery, *, is_bounded: bool) -> tuple[EmitMode, str]:
    """The same of an aggregation, or of window functions."""
    what = "an aggregate" if query.aggregation is not None else "a window function"
    if is_distinct(query):
        return EmitMode.FINAL, "a row is emitted when it first comes"
    if closing_of(query) is None:
        if query.text.within_final and is_bounded and in_time(query) is not None and _corrected_late(query) is None:
            return EmitMode.FINAL, "rows wait for their place in the order of time"
        return EmitMode.CHANGELOG, f"{what} changes with the rows of its {_group_word(query)}"
    if _corrected_late(query) is not None:
        return EmitMode.CHANGELOG, "late rows correct results"
    return EmitMode.FINAL, f"{what} is final once its window has ended"


def emits_changes(query: LogicalQuery, mode: EmitMode) -> bool:
    """Whether results may be retracted."""
    if mode is EmitMode.FINAL:
        return False
    return (
        not query.is_plain
        or bool(changing(query.root))
        or any(join.kind.retracts or join.asof is not None for join in joins_of(query.root))
    )


def is_distinct(query: LogicalQuery) -> bool:
    """Whether results are the different rows of the tree, which are never taken back."""
    if query.aggregation is None or query.aggregation.calls or not query.aggregation.keys or changing(query.root):
        return False
    return not any(join.kind.retracts for join in joins_of(query.root)) and _corrected_late(query) is None


def _takes_first(query: LogicalQuery) -> bool:
    """Whether results are rows of the tree, the first that come: final if these are."""
    return query.over is not None and query.over.by_arrival


def _group_word(query: LogicalQuery) -> str:
    return "group" if query.aggregation is not None else "partition"


def _corrected_late(query: LogicalQuery) -> Join | None:
    """The first join whose results are corrected by late rows, if it does not join at once and for good."""
    late = correcting_join(query.root)
    return None if late is None or (late.asof is not None and emits_at_once(query, late.asof)) else late


def _final_reason(query: LogicalQuery, joins: Sequence[Join]) -> str:
    if not joins:
        return "each row is emitted at once" if query.ordering is None else "rows wait for their place in the order"
    as_of = [join.asof for join in joins if join.asof is not None]
    if not as_of:
        timed_out = any(join.condition.ttl is not None for join in joins)
        return "every join has a window, or a join_ttl" if timed_out else "every join has a window"
    if not all(emits_at_once(query, each) for each in as_of):
        return "rows wait until their partner is known"
    windowed = len(as_of) < len(joins)
    return "every other join has a window" if windowed else "rows are joined at once, and never revised"


def _check_wait(query: LogicalQuery, mode: EmitMode) -> None:
    """Raise ``PlanError`` where ``temporal_wait = 'none'`` has no join to apply to."""
    if query.settings.temporal_wait != "none":
        return
    position = query.text.settings_positions.get("temporal_wait", query.text.position)
    has_join = any(join.asof is not None and join.asof.of_table for join in joins_of(query.root))
    if not has_join and (query.inner or any(input.results is not None for input in query.inputs)):
        return  # the setting is for all queries of the statement
    if mode is EmitMode.CHANGELOG:
        raise PlanError(
            "temporal_wait = 'none' is for EMIT FINAL: a changelog emits results at once, and corrects them",
            hint="leave it out, or use EMIT FINAL",
            position=position,
        )
    if not has_join:
        raise PlanError(
            "temporal_wait = 'none', but no join here is FOR SYSTEM_TIME AS OF", hint="leave it out", position=position
        )


def _check_ordering(query: LogicalQuery, mode: EmitMode) -> None:
    if query.ordering is None:
        return
    if mode is EmitMode.CHANGELOG:
        raise UnsupportedError(
            "ORDER BY emits rows once they are final; a changelog corrects rows after it has emitted them",
            hint="leave out ORDER BY, or use EMIT FINAL",
            position=query.text.emit_position or query.ordering.position,
        )
    if lag_of(query.root, query.ordering.input) is None:
        input = query.inputs[query.ordering.input]
        time = f"{input.alias}.{input.time.column}"
        raise UnsupportedError(
            f"ORDER BY {time} would wait forever: a result may have any {time}, however long ago",
            hint="add WITHIN to the join, or a tolerance to MATCH_CONDITION, or order by another event time",
            position=query.ordering.position,
        )


def _corrected(input: Input, position: Position | None) -> UnsupportedError:
    if input.results is not None:
        why = f"the results of {input.alias} are corrected"
    else:
        why = f"the rows of {input.stream.name} change (mode {input.stream.mode.value})"
    return UnsupportedError(
        f"EMIT FINAL: {why}, so any result may have to be corrected",
        hint="leave out EMIT FINAL, or use EMIT CHANGELOG and a sink that takes corrections",
        position=position,
    )


def _never_final(query: LogicalQuery, position: Position | None) -> UnsupportedError:
    if query.aggregation is not None:
        what = "an aggregate changes with every row of its group, and no key says when the last one has come"
    else:
        what = f"a window function changes with the rows of its partition: {obstacle(query)}"
    if query.aggregation is not None:
        by = "group by a window (TUMBLE, HOP, CUMULATE), an event time, or what rises with one (date_trunc('HOUR', ts),"
        by += " CAST(ts AS DATE), ts DIV 60)"
    else:
        by = "order by an event time, with frames up to the row, or partition by a window (TUMBLE, HOP, CUMULATE) or an"
        by += " event time"
    return UnsupportedError(
        f"EMIT FINAL: {what}",
        hint=f"{by}, or use EMIT CHANGELOG and a sink that takes corrections",
        position=position,
    )


def _unbounded(query: LogicalQuery, found: Sequence[tuple[Join, Side]]) -> PlanError:
    join, side = found[0]
    kept = [each for of, each in found if of is join]
    written = [(each, join.child(join.written(each))) for each in Side if join.written(each) in kept]
    sides = " and ".join(
        f"the {each.value} side ({', '.join(query.inputs[i].alias for i in sorted(child.visible))})"
        for each, child in written
    )
    own, other = (query.inputs[join.condition.leaders[each.index][0]].alias for each in (side, side.other))
    return PlanError(
        f"EMIT FINAL cannot bound the state of {sides}: a partner may come at any later time",
        detail=_why_unbounded(query, join) or f"nothing says how long a row of {own} waits for one of {other}",
        hint="add WITHIN INTERVAL '…' to the join (or inequalities over both event times), use EMIT CHANGELOG, "
        f"or set a limit with SETTINGS {LIMIT_SETTING} = …",
        position=join.position,
    )


def _why_unbounded(query: LogicalQuery, join: Join) -> str | None:
    """Why rows of a join stay for ever, where more is known than that no condition bounds them."""
    if join.null_aware:
        return "to NOT IN, NULL matches whatever the times; NOT EXISTS does not compare with it"
    below = [each.asof for side in Side for each in joins_of(join.child(side)) if each.asof is not None]
    if any(asof.at is not None for asof in below):
        return (
            "a row joined AS OF a time that is no event time may wait for it however long;"
            " with temporal_wait = 'none' it does not"
        )
    for side in Side:
        for leader in join.condition.leaders[side.index]:
            if not changing(join.child(side)) and lag_of(join.child(side), leader) is None:
                input = query.inputs[leader]
                others = [query.inputs[i] for i in join.child(side).visible if lag_of(join.child(side), i) is not None]
                time, *better = [f"{each.alias}.{each.time.column}" for each in (input, *others[:1])]
                instead = "".join(f"; compare {each} instead, which may not" for each in better)
                return f"{time} of joined rows may lie arbitrarily far behind the frontier{instead}"
    return _missing_watermark(query, join)


def _missing_watermark(query: LogicalQuery, join: Join) -> str | None:
    """Where an inequality stands over a column that is not an event time: which side lacks a watermark on it."""
    for condition in join.condition.residual:
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
