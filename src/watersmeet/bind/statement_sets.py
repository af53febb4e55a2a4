"""From a statement set to one plan, in which its queries share stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import ConfigError, Position, UnsupportedError
from watersmeet.lookup.tables import OpenTable, open_table
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.shared_stores import share
from watersmeet.sql.statements import SettingValue, StatementSet


def plan_set(
    statement: StatementSet, streams: Mapping[str, StreamDef], open_table: OpenTable = open_table
) -> PhysicalPlan:
    """Return the plan of queries that run as one; each setting that one of them names holds for all.

    Raises what ``plan_query`` and ``share`` raise, ``ConfigError`` for settings that contradict each other, and
    ``UnsupportedError`` for those that queries with shared stores cannot have.
    """
    settings, positions = _common_settings(statement)
    plans = []
    for insert in statement.inserts:
        query = replace(insert.query, settings=settings, settings_positions=positions)
        plans.append(plan_query(query, streams, open_table, shares_stores=True))
    _check_settings(plans[0])
    return share(plans)


def _common_settings(statement: StatementSet) -> tuple[dict[str, SettingValue], dict[str, Position]]:
    found: dict[str, SettingValue] = {}
    positions: dict[str, Position] = {}
    for insert in statement.inserts:
        query = insert.query
        for name, value in query.settings.items():
            position = query.settings_positions.get(name, query.position)
            positions.setdefault(name, position)
            if found.setdefault(name, value) != value:
                raise ConfigError(
                    f"{name} = {value!r}, but another query of this statement set has {found[name]!r}",
                    hint="queries that run as one have the same settings: name each in one of them",
                    position=position,
                )
    return found, positions


def _check_settings(plan: PhysicalPlan) -> None:
    settings, positions = plan.query.settings, plan.query.text.settings_positions
    if settings.skew == "spread":
        raise UnsupportedError(
            "hot keys are not spread where queries share stores", hint="leave skew out", position=positions.get("skew")
        )
