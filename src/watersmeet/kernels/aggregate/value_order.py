"""Figures of all values of a group in their order: lists, texts and percentiles.

No order of arrival is seen, so results do not depend on how rows are cut into batches.
"""

from __future__ import annotations

from sqlglot import exp

from watersmeet.kernels.aggregate.parts import Parts

# every value as often as it occurs, or once
_ALL = "flatten(list(list_resize([v0], CAST(w AS BIGINT), v0) ORDER BY v0))"
_ONCE = "list(v0 ORDER BY v0)"


def collected(value: str, parts: Parts, *, once: bool) -> str:
    """Return SQL for the list of values; an empty one if there are none."""
    return f"coalesce({parts.figure((value,), _ONCE if once else _ALL)}, [])"


def joined(value: str, separator: str, parts: Parts, *, once: bool) -> str:
    """Return SQL for all texts in one; NULL if there are none."""
    between = exp.Literal.string(separator).sql(dialect="duckdb")
    return parts.figure((value,), f"array_to_string({_ONCE if once else _ALL}, {between})")


def interpolated(value: str, percentage: float, parts: Parts) -> str:
    """Return SQL for a value at a place in the order, or between two: of 1, 2, 4, 8 the median is 3."""
    place = f"CAST({percentage!r} AS DOUBLE) * (n - 1)"
    low, high = (f"min(CAST(v0 AS DOUBLE)) FILTER (WHERE upto > {step}({place}))" for step in ("floor", "ceil"))
    share = f"any_value({place} - floor({place}))"
    # of two equal values it is either, also if they are infinite
    mixed = f"(1 - {share}) * {low} + {share} * {high}"
    return parts.figure((value,), f"CASE WHEN {low} = {high} THEN {low} ELSE {mixed} END", ranked=True)


def element(value: str, percentage: float, parts: Parts) -> str:
    """Return SQL for the least value that so many of the values do not exceed: of 1, 2, 4, 8 the median is 2."""
    there = f"upto >= ceil(CAST({percentage!r} AS DOUBLE) * n)"
    return parts.figure((value,), f"min(v0) FILTER (WHERE {there})", ranked=True)
