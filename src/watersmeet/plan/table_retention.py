"""``table_retention``: how far behind the frontier versions of tables stay, and changes of them correct results."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import ConfigError, PlanError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import EmitMode
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import AsofClause, Join, Node, joins_of

SETTING = "table_retention"


def with_retention(asof: AsofClause, query: LogicalQuery) -> AsofClause:
    """A clause with how long its versions can be asked for and corrected.

    AS OF an event time both are the setting's, by default 0, and so AS OF a constant.  AS OF another time, versions can
    be asked for without a limit by default.  AS OF PROCTIME() results are corrected if EMIT CHANGELOG or the setting
    asks for it.  With ``temporal_wait = 'none'`` nothing is corrected.
    """
    if not asof.of_table or query.inputs[asof.right].stream.outside:
        return asof
    setting = query.settings.table_retention
    span = round(setting * 1_000_000) if isinstance(setting, float) else None
    given = setting is not None
    if asof.direction is Direction.CURRENT:
        is_revised = given or query.text.emit is EmitMode.CHANGELOG
        return replace(asof, corrected=span) if is_revised else asof
    corrected = span if given and query.settings.temporal_wait != "none" else 0
    if asof.at is not None and asof.at.find(exp.Column):
        return replace(asof, kept=span, corrected=corrected)
    return replace(asof, kept=span, corrected=corrected) if given else asof


def corrected_join(node: Node) -> Join | None:
    """The first join whose results changes of its table correct after the frontier has passed them.

    Not one that asks for other times: there the setting says how long versions are kept.
    """
    joins = (join for join in joins_of(node) if join.asof is not None and join.asof.at is None)
    return next((join for join in joins if join.asof is not None and join.asof.corrected != 0), None)


def final_refused(join: Join, query: LogicalQuery) -> PlanError:
    """The error for EMIT FINAL over such a join."""
    return PlanError(
        f"EMIT FINAL: with {SETTING} a change of the table may take back a result that was final",
        hint=f"use EMIT CHANGELOG, or leave out {SETTING}",
        position=query.text.emit_position or join.position,
    )


def check_table_retention(query: LogicalQuery) -> None:
    """Raise ``ConfigError`` where the setting applies to no join, or to one that never corrects its results.

    ``UnsupportedError`` where the rows that stay are counted.
    """
    if query.settings.table_retention is None:
        return
    position = query.text.settings_positions.get(SETTING)
    clauses = [join.asof for join in joins_of(query.root) if join.asof is not None and join.asof.of_table]
    clauses = [asof for asof in clauses if not query.inputs[asof.right].stream.outside]
    if not clauses:
        raise ConfigError(
            f"{SETTING} is for joins FOR SYSTEM_TIME AS OF over a stream, and there is none",
            hint="leave it out",
            position=position,
        )
    by_event_time = [asof for asof in clauses if asof.direction is not Direction.CURRENT and asof.at is None]
    if by_event_time and query.settings.temporal_wait == "none":
        raise ConfigError(
            f"temporal_wait = 'none' never corrects a result, so {SETTING} would have no effect",
            hint="leave out one of them",
            position=position,
        )
    # as of PROCTIME() rows of the left side stay so long
    kept = [query.inputs[asof.left if asof.direction is Direction.CURRENT else asof.right] for asof in clauses]
    counting = next((each for each in kept if each.time.unit is TimeUnit.ROWS), None)
    if counting is not None and query.settings.table_retention != "forever":
        raise UnsupportedError(
            f"{SETTING} is a duration, but {counting.alias} counts rows",
            hint=f"write {SETTING} = 'forever'",
            position=position,
        )
