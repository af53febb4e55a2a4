"""From the queries of a statement set to one plan, in which they share stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.lookup.tables import OpenTable, open_table
from watersmeet.plan.shared_stores import SharedPlan, share
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.sql.statements import Query, SettingValue


def plan_set(
    queries: Sequence[Query], streams: Mapping[str, StreamDef], open_table: OpenTable = open_table
) -> SharedPlan:
    """Return the plan of queries that run as one; each setting that one of them names holds for all.

    Raises what ``plan_query`` and ``share`` raise, ``ConfigError`` for settings that contradict each other, and
    ``UnsupportedError`` for those that queries with shared stores cannot have.
    """
    settings = _common_settings(queries)
    plans = []
    for query in queries:
        positions = {name: query.settings_positions.get(name, query.position) for name in settings}
        of_set = replace(query, settings=settings, settings_positions=positions)
        plans.append(plan_query(of_set, streams, open_table, shares_stores=True))
    return share(plans)


def _common_settings(queries: Sequence[Query]) -> dict[str, SettingValue]:
    found: dict[str, SettingValue] = {}
    for query in queries:
        for name, value in query.settings.items():
            position = query.settings_positions.get(name, query.position)
            if found.setdefault(name, value) != value:
                raise ConfigError(
                    f"{name} = {value!r}, but another query of this statement set has {found[name]!r}",
                    hint="queries that run as one have the same settings: name each in one of them",
                    position=position,
                )
            if name == "mode" and str(value).lower() == REAL_TIME:
                raise UnsupportedError("queries that share stores do not run in real time yet", position=position)
            if name == "skew" and value == "spread":
                raise UnsupportedError(
                    "hot keys are not spread where queries share stores", hint="leave skew out", position=position
                )
    return found
