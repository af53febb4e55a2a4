"""The streams of which a query needs no more than the newest row of each key, so that older ones need not be read."""

from __future__ import annotations

from watersmeet.plan.logical.tree import joins_of
from watersmeet.plan.physical_plan import PhysicalPlan


def read_by_newest_row(plan: PhysicalPlan) -> frozenset[str]:
    """The changing streams, by lower-case name, of which all inputs are read by their newest rows.

    Operators keep the newest row of a changing stream, by its event time.  A join as of a time keeps older versions of
    its right side.  With ``max_future``, an older row is the newest one if that came from the far future.
    """
    by_newest_row: set[str] = set()
    by_all_rows: set[str] = set()
    for query in plan.nested:
        as_of = {i for join in joins_of(query.query.root) if join.asof is not None for i in join.right.inputs}
        for part in (each for each in query.own_inputs if not each.branches):
            is_newest = part.input.stream.changes and part.input.index not in as_of and part.max_future is None
            (by_newest_row if is_newest else by_all_rows).add(part.input.stream.name.lower())
    return frozenset(by_newest_row - by_all_rows)
