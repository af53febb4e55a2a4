"""Counters of a running query, as Spark's observed metrics.

Every bucket of an operator reports its counters since the query began, in a COUNTER frame.  Here they are summed over
buckets (frontiers: the minimum; memory: the maximum), and so appear in the progress of every query, whatever its sink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.frames import FrameKind
from watersmeet.engine.outbox import INPUT_FRONTIER
from watersmeet.engine.step_times import STEP_TIME

#: The name of the metrics in a query's progress.
METRICS = "watersmeet"
#: The name under which the progress counts result rows.
RESULTS = "watersmeet_results"

_OF_OPERATORS = ("state_rows", "state_bytes", "disk_bytes", "segments", "loaded_bytes", "results", "matched")
_OF_SIDES = ("held", "held_bytes", "newest")
_OF_STEPS = (STEP_TIME,)
_OF_PROBES = ("sampled", "expected", "found")
_OF_INPUTS = ("in", "used", "filtered", "late", "quarantined", "heard")
_FRONTIER, _LARGEST = "frontier", "worker_bytes"
_OF_FRAMES = f"CASE WHEN kind = {int(FrameKind.COUNTER)} THEN named_struct('sender', part, 'counters', payload) END"
# One aggregate for all counters: Spark plans every batch, and with forty aggregates that is a tenth of a small one.
# Spark's scheduler evaluates it whenever a task ends, so it must cost nothing until all buckets have reported.  A task
# that ran twice may have reported twice.
_OVER_BUCKETS = rf"""
transform(
  array(collect_list(%(reported)s)),
  reports -> IF(size(reports) < %(least)d, NULL, aggregate(
    array_sort(reports),
    named_struct('sender', '', 'sums', CAST(map() AS MAP<STRING, BIGINT>)),
    (found, report) -> IF(report.sender = found.sender, found, named_struct(
      'sender', report.sender,
      'sums', map_zip_with(
        found.sums,
        from_json(CAST(report.counters AS STRING), 'MAP<STRING, BIGINT>'),
        (name, known, value) ->
          CASE WHEN name RLIKE '^[^.]+[.]({_FRONTIER}$|{INPUT_FRONTIER}[.])' THEN least(known, value)
               WHEN name RLIKE '^[^.]+[.]{_LARGEST}$' THEN greatest(known, value)
               ELSE coalesce(known, 0L) + coalesce(value, 0L) END
      )
    )),
    found -> found.sums
  ))
)[0]"""


def kernel_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """What only some kernels count: rows asked for, versions behind, deletes of unknown keys.  EXPLAIN shows probes."""
    common = {*_OF_OPERATORS, *_OF_SIDES, *_OF_STEPS, *_OF_INPUTS, *_OF_PROBES, _FRONTIER, INPUT_FRONTIER, _LARGEST}
    return {name: value for name, value in counters.items() if name.split(".")[1] not in common}


def updated(counters: Mapping[str, int], reported: Mapping[str, int]) -> dict[str, int]:
    """The counters after a report.

    Of figures about probe orders only those reported last stay: orders change.  Steps count since the last report.
    """
    kept = {name: value for name, value in counters.items() if name.split(".")[1] not in _OF_PROBES}
    steps = {name: value + kept.get(name, 0) for name, value in reported.items() if name.split(".")[1] in _OF_STEPS}
    return {**kept, **reported, **steps}


def rows_in_frames() -> Column:
    """An aggregate over result frames: how many rows they hold."""
    return F.coalesce(F.sum(F.when(F.col("kind") == int(FrameKind.ROWS), F.col("frontier"))), F.lit(0))


def observed_counters(reports: int = 0, reported: str = _OF_FRAMES) -> Column:
    """An aggregate over frames: the counters that a batch reports, by name; NULL for fewer than so many ``reports``.

    ``reported`` is SQL for a struct of ``sender`` and ``counters``, NULL in rows that report none.
    """
    return F.expr(_OVER_BUCKETS % {"reported": reported, "least": reports}).alias("counters")


class ProgressReader:
    """Reads each progress report of a query once.

    PySpark's ``recentProgress`` converts the last hundred reports at every call: frequent calls keep a core busy.
    """

    def __init__(self) -> None:
        self._last = ""

    def new(self, query: StreamingQuery) -> list[dict[str, Any]]:
        """The reports since the last call, oldest first."""
        recent: Any = query._jsq.recentProgress()
        newest_first: list[str] = []
        for number in reversed(range(len(recent))):
            text = str(recent[number].json())
            if text == self._last:
                break
            newest_first.append(text)
        if newest_first:
            self._last = newest_first[0]
        return [json.loads(text) for text in reversed(newest_first)]


def counters_of(progress: Mapping[str, Any], label: str = "") -> dict[str, int]:
    """The counters in one progress report, for the query that was built with this label."""
    return dict(_observed(progress, METRICS + label).get("counters") or {})


def rows_out(progress: Mapping[str, Any]) -> int:
    """The number of result rows in one progress report."""
    return int(_observed(progress, RESULTS).get("rows_out") or 0)


def _observed(progress: Mapping[str, Any], name: str) -> dict[str, Any]:
    observed = progress.get("observedMetrics", {}).get(name)
    return dict(observed.asDict() if hasattr(observed, "asDict") else observed or {})
