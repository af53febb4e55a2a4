"""Watersmeet: streaming SQL joins for PySpark.

``connect`` opens a ``Session``, which runs SQL.  What its methods return is in ``watersmeet.session.results``, running
queries in ``watersmeet.runtime.query``, errors in ``watersmeet.errors``.  The functions join DataFrames without SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watersmeet.runtime.query_mode import QueryMode
    from watersmeet.session.joins import aggregate, asof_join, changelog_join, interval_join, lookup_join, temporal_join
    from watersmeet.session.session import Session, connect

__all__ = [
    "QueryMode",
    "Session",
    "aggregate",
    "asof_join",
    "changelog_join",
    "connect",
    "interval_join",
    "lookup_join",
    "temporal_join",
]

_HOMES = {
    "QueryMode": "watersmeet.runtime.query_mode",
    "Session": "watersmeet.session.session",
    "connect": "watersmeet.session.session",
    "aggregate": "watersmeet.session.joins",
    "asof_join": "watersmeet.session.joins",
    "changelog_join": "watersmeet.session.joins",
    "interval_join": "watersmeet.session.joins",
    "lookup_join": "watersmeet.session.joins",
    "temporal_join": "watersmeet.session.joins",
}


def __getattr__(name: str) -> Any:
    # imported on first use: the test harness and the workers do not need the session
    if name not in _HOMES:
        raise AttributeError(f"module 'watersmeet' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
