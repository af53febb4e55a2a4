"""ALLOWED LATENESS: joins take rows behind the frontier, and correct what they have given.

Results do not wait for such rows.  So they need results that only grow (inner and semi joins), or a changelog.
"""

from __future__ import annotations

from watersmeet.errors import ConfigError, PlanError, UnsupportedError
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Join, Node, joins_of

SETTING = "allowed_lateness"


def correcting_join(node: Node) -> Join | None:
    """The first join whose results late rows would correct; None if they only add to results."""
    return next((join for join in joins_of(node) if join.condition.grace.lateness and _is_corrected(join)), None)


def final_refused(join: Join, query: LogicalQuery) -> PlanError:
    """The error for EMIT FINAL over a join whose results late rows would correct."""
    return PlanError(
        "EMIT FINAL: with ALLOWED LATENESS a row that comes late may take back a result that was final",
        detail="rows without a partner are given once the frontier has passed them, and the partner may still come"
        if join.asof is None
        else "a later version may still take the place of the one that was joined",
        hint="use EMIT CHANGELOG, or GRACE PERIOD, for which results wait",
        position=query.text.emit_position or join.position,
    )


def check_allowed_lateness(query: LogicalQuery) -> None:
    """Check the clause and the setting against a query after all passes.

    Raises ``ConfigError`` for a setting that applies to no join or contradicts another, and ``UnsupportedError`` for
    results in an order and for streams that count rows.
    """
    positions = query.text.settings_positions
    if not any(join.condition.grace.lateness for join in joins_of(query.root)):
        if query.settings.allowed_lateness:
            raise ConfigError(
                f"{SETTING} is for joins of streams, and there is none",
                hint="leave it out: how long windows wait for rows, the delay of WATERMARK FOR says",
                position=positions.get(SETTING),
            )
        return
    if (counting := query.row_counting_input) is not None:
        raise UnsupportedError(
            f"{SETTING} is a duration, but {counting.alias} counts rows",
            hint="declare a larger delay: WATERMARK FOR sn AS sn - 10",
            position=positions.get(SETTING),
        )
    if query.ordering is not None:
        raise UnsupportedError(
            "ORDER BY: with ALLOWED LATENESS a result may come after others of later times",
            hint="use GRACE PERIOD, for which results wait, or leave out ORDER BY",
            position=query.ordering.position,
        )
    if query.settings.join_algorithm == "sliding":
        raise ConfigError(
            "join_algorithm = 'sliding' gives results in order, and with ALLOWED LATENESS some come later",
            hint="leave it out, or use GRACE PERIOD, for which results wait",
            position=positions.get("join_algorithm"),
        )


def _is_corrected(join: Join) -> bool:
    return join.kind.retracts or join.asof is not None
