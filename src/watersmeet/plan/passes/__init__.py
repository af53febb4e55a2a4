"""The passes over a logical query, in their order.

Each is a function with one contract: it takes a whole query and returns a whole query with the same results, or raises
a ``WatersmeetError`` for what cannot run.  None changes its argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.passes.apply_clauses import apply_clauses
from watersmeet.plan.passes.check_external_tables import check_external_tables
from watersmeet.plan.passes.choose_times import choose_times
from watersmeet.plan.passes.clear_expiries import clear_expiries
from watersmeet.plan.passes.close_windows import close_windows
from watersmeet.plan.passes.find_windows import find_windows
from watersmeet.plan.passes.group_joins import group_joins
from watersmeet.plan.passes.keep_deletes import keep_deletes
from watersmeet.plan.passes.order_joins import order_joins
from watersmeet.plan.passes.push_filters import push_filters
from watersmeet.plan.passes.slide_joins import slide_joins

Pass = Callable[[LogicalQuery], LogicalQuery]

PASSES: tuple[Pass, ...] = (
    push_filters,  # WHERE and ON over one input become filters of that input
    keep_deletes,  # filters below a join as of a time let retractions through
    choose_times,  # rows are dated by a declared order where windows or ORDER BY are over it
    check_external_tables,  # external tables stand only on the right side of lookups
    apply_clauses,  # WITHIN and GRACE PERIOD become part of every join that they apply to
    order_joins,  # inner joins are ordered so that each has a key
    close_windows,  # joins get the windows that follow from the conditions of other joins
    find_windows,  # conditions become keys, windows and what is left; times get their bounds
    clear_expiries,  # rows of a changelog that may be taken back do not expire
    group_joins,  # inner and left joins of streams with a common key run in one operator
    slide_joins,  # joins whose results are wanted in an order get a side that probes
)


def optimize(query: LogicalQuery) -> LogicalQuery:
    """The query after all passes."""
    return reduce(lambda found, each: each(found), PASSES, query)
