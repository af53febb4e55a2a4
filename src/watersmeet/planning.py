"""From a parsed query to its physical plan: what the session, EXPLAIN and the test harness all do."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.catalog import StreamDef
from watersmeet.plan.physical import PhysicalPlan
from watersmeet.plan.planner import physical_plan
from watersmeet.sql.bind import bind
from watersmeet.sql.statements import Query


def plan_query(query: Query, streams: Mapping[str, StreamDef]) -> PhysicalPlan:
    """How a query over ``streams`` (by lower-case name) runs.

    Raises ``BindError``, ``CatalogError``, ``UnsupportedError`` and ``PlanError``, with the place in the text.
    """
    return physical_plan(bind(query, streams))
