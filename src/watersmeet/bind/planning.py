"""From a parsed query to its physical plan, for the session, EXPLAIN and the test harness.

parsed query -> bind (names) -> logical query -> PASSES -> operators -> physical plan -> checks
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watersmeet.bind.statement import bind
from watersmeet.catalog.streams import StreamDef
from watersmeet.lookup.tables import OpenTable, open_table
from watersmeet.plan.determinism import check_determinism
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.planner import physical_plan
from watersmeet.sql.statements import Query


def plan_query(
    query: Query, streams: Mapping[str, StreamDef], open_table: OpenTable = open_table, *, shares_stores: bool = False
) -> PhysicalPlan:
    """Return the physical plan of a query over ``streams`` (by lower-case name); ``open_table`` opens external tables.

    With ``shares_stores`` it is planned to run with other queries (bind/statement_sets.py).

    Raises ``BindError``, ``CatalogError``, ``UnsupportedError`` and ``PlanError``, with the position in the text.
    """
    plan = physical_plan(replace(bind(query, streams), shares_stores=shares_stores), open_table)
    for each in plan.nested:
        check_determinism(each)
    return plan
