"""Windows of a join that its conditions, and the filters below it, set only together (logical/implied_bounds.py)."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.plan.external_tables import table_of
from watersmeet.plan.logical.conditions import in_event_times, time_columns
from watersmeet.plan.logical.implied_bounds import implied_bounds
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Input, Join, changing, leaves_of
from watersmeet.plan.passes.condition_terms import Pair


def implied_windows(join: Join, query: LogicalQuery, inputs: Sequence[Input]) -> dict[Pair, Interval]:
    """Bounds of the time of an input of the right side minus that of one of the left, with the times of ``inputs``.

    A join with ``join_ttl`` keeps that, and one as of a time or of changing streams has no window.
    """
    if join.asof is not None or changing(join) or join.null_aware or table_of(join) is not None:
        return {}
    if query.settings.join_ttl is not None:
        return {}
    filters = [each for leaf in leaves_of(join) for each in leaf.input.filters]
    conditions = [in_event_times(each, inputs, query.columns) for each in (*join.condition.residual, *filters)]
    bounds = implied_bounds(conditions, time_columns(inputs, query.columns), query.columns)
    left, right = join.left.visible, join.right.visible
    found = {}
    for (i, j), interval in bounds.items():
        if i in left and j in right:
            found[i, j] = interval
        elif j in left and i in right:
            found[j, i] = interval.negated()
    return found
