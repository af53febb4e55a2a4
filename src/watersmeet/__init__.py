"""Watersmeet: streaming SQL joins for PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watersmeet.api import aggregate, asof_join, changelog_join, interval_join, lookup_join, temporal_join
    from watersmeet.runtime.query import QueryMode
    from watersmeet.session import Session, connect

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
    "QueryMode": "watersmeet.runtime.query",
    "Session": "watersmeet.session",
    "connect": "watersmeet.session",
    "aggregate": "watersmeet.api",
    "asof_join": "watersmeet.api",
    "changelog_join": "watersmeet.api",
    "interval_join": "watersmeet.api",
    "lookup_join": "watersmeet.api",
    "temporal_join": "watersmeet.api",
}


def __getattr__(name: str) -> Any:
    # by name, when first asked for: the test harness and the workers need no PySpark session code
    if name not in _HOMES:
        raise AttributeError(f"module 'watersmeet' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
