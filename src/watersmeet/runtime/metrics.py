"""Counters of a running query, as Spark's observed metrics.

Every operator's bucket tells its counters since the query began, as COUNTER frames.  Here they are summed over
buckets (a frontier: the minimum) and so stand in the progress of every result, whatever sink it goes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from watersmeet.engine.frames import FrameKind
from watersmeet.engine.spec import OperatorSpec

#: The name of the metrics in a query's progress.
METRICS = "watersmeet"
#: The name under which the progress counts result rows.
RESULTS = "watersmeet_results"

_OF_SOURCES = ("in", "used", "filtered", "late", "quarantined")
_OF_OPERATORS = ("state_rows", "state_bytes", "segments", "loaded_bytes")
_FRONTIER = "frontier"


def counter_names(operators: Iterable[OperatorSpec]) -> list[str]:
    """All counters that a query's operators tell."""
    names = []
    for spec in operators:
        sources = [input.source for input in spec.inputs if input.source is not None]
        names += [f"{spec.name}.{counter}.{source}" for source in sources for counter in _OF_SOURCES]
        names += [
            f"{spec.name}.heard.{input.source}.{part}"
            for input in spec.inputs
            if input.source is not None
            for part in input.parts
        ]
        names += [f"{spec.name}.{counter}" for counter in (*_OF_OPERATORS, *spec.counters, _FRONTIER)]
    return names


def kernel_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """Of all counters those that kernels keep themselves: lookups in tables, versions behind."""
    common = {*_OF_OPERATORS, _FRONTIER}
    return {
        name: value for name, value in counters.items() if name.count(".") == 1 and name.split(".")[1] not in common
    }


def observed_columns(operators: Iterable[OperatorSpec]) -> list[Column]:
    """Aggregates over frames that give each counter; a counter not told in a batch is NULL."""
    found = []
    for name in counter_names(operators):
        aggregate = F.min if name.split(".", 1)[1] == _FRONTIER else F.sum
        told = (F.col("kind") == int(FrameKind.COUNTER)) & (F.col("part") == name)
        found.append(aggregate(F.when(told, F.col("frontier"))).alias(name))
    return found


def counters_of(progress: Mapping[str, Any], label: str = "") -> dict[str, int]:
    """The counters that one progress report holds, of the query that was built under this label."""
    return {name: value for name, value in _observed(progress, METRICS + label).items() if value is not None}


def rows_out(progress: Mapping[str, Any]) -> int:
    """How many result rows one progress report counts."""
    return int(_observed(progress, RESULTS).get("rows_out") or 0)


def _observed(progress: Mapping[str, Any], name: str) -> dict[str, int | None]:
    observed = progress.get("observedMetrics", {}).get(name)
    if observed is None:
        return {}
    return dict(observed.asDict() if hasattr(observed, "asDict") else observed)
