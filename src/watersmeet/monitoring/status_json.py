"""A session's queries as JSON, for the live page and for programs (docs/monitoring.md describes the fields)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from watersmeet.engine.time_texts import time_text
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.plan.operator_tree import TreeNode
from watersmeet.runtime.history import History
from watersmeet.runtime.report import OperatorReport
from watersmeet.runtime.run_progress import RunProgress
from watersmeet.runtime.status import OperatorStatus, QueryStatus

#: Changes when a field changes its meaning or goes.
VERSION = 1
_ROW_COUNTS = ("rows_in", "used", "filtered", "late", "reopened", "quarantined", "expired")


def statuses_json(statuses: Iterable[QueryStatus], time: float) -> dict[str, Any]:
    """All queries at a time."""
    return {"version": VERSION, "time": time, "queries": [_query(each) for each in statuses]}


def _query(status: QueryStatus) -> dict[str, Any]:
    report, history = status.report, status.history
    return {
        "name": status.name,
        "time": status.time,
        "state": status.state.value,
        "waiting": report.waiting,
        "mode": status.mode,
        "real_time": status.is_real_time,
        "checkpoint": status.checkpoint,
        "targets": list(status.targets),
        "started": history.started,
        "ended": status.ended,
        "batches": report.batches,
        "last_batch": None
        if history.last is None
        else {
            "number": history.last.number,
            "ended": history.last.ended,
            "seconds": history.last.milliseconds / 1000,
        },
        "rows_out": report.rows_out,
        **report.totals(),
        "state_rows": report.state_rows,
        "state_bytes": report.state_bytes,
        "progress": None if report.progress is None else _progress(report.progress),
        "tree": _tree(status.tree),
        "operators": {each.name: _operator(each) for each in status.operators},
        "history": _history(history),
        "failures": [
            {"time": each.time, "kind": each.kind, "message": each.message, "went_on": each.went_on}
            for each in history.failures
        ],
        "explain": status.explain,
    }


def _progress(progress: RunProgress) -> dict[str, Any]:
    """How much of a run is done; null is what is not known."""
    return {
        "fraction": progress.fraction,
        "remaining_seconds": progress.remaining,
        "text": progress.text,
        "tasks": None if progress.tasks is None else {"done": progress.tasks.done, "planned": progress.tasks.planned},
        "inputs": [
            {
                "stream": each.name,
                "unit": each.unit,
                "ahead": each.ahead,
                "done": None if each.ahead is None else each.done,
            }
            for each in progress.inputs
        ],
    }


def _tree(node: TreeNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "text": node.text,
        "is_source": node.is_source,
        "below": [_tree(each) for each in node.below],
    }


def _operator(operator: OperatorStatus) -> dict[str, Any]:
    report = operator.report
    return {
        "description": operator.description,
        "unit": report.unit.value,
        "rows_in": operator.rows_in,
        "rows_in_per_second": operator.rows_in_rate,
        "results": report.results,
        "results_per_second": operator.results_rate,
        "frontier": _time(report.frontier, report.unit),
        "newest": _time(report.newest, report.unit),
        "lag": _span(report.lag, report.unit),
        "state_rows": report.state_rows,
        "state_bytes": report.state_bytes,
        "disk_bytes": report.disk_bytes,
        "hot_keys": report.hot_keys,
        "steps": report.steps,
        "step_p50": report.step_p50,
        "step_p95": report.step_p95,
        "worker_bytes": report.worker_bytes,
        "sides": sides_of(report),
    }


def sides_of(report: OperatorReport) -> dict[str, dict[str, Any]]:
    """What an operator counts and holds of each of its inputs, by label."""
    counts: dict[str, Mapping[str, int]] = {name: getattr(report, name) for name in _ROW_COUNTS}
    counts |= {"state_rows": report.held, "state_bytes": report.held_bytes}
    labels = dict.fromkeys(label for by_label in (*counts.values(), report.input_frontiers) for label in by_label)
    labels |= dict.fromkeys(key.rpartition(".")[0] for key in report.evicted)
    return {
        label: {
            **{name: by_label.get(label) for name, by_label in counts.items()},
            "evicted": {
                reason: count
                for key, count in report.evicted.items()
                for evicted, _, reason in [key.rpartition(".")]
                if evicted == label
            },
            "frontier": _time(report.input_frontiers.get(label), report.unit),
        }
        for label in labels
    }


def _history(history: History) -> dict[str, Any]:
    """The slots of the last hour, column by column."""
    slots = history.slots
    names = dict.fromkeys(name for slot in slots for name in slot.operators)
    return {
        "began": [slot.began for slot in slots],
        "batches": [slot.batches for slot in slots],
        "mean_seconds": [slot.seconds / slot.batches for slot in slots],
        "longest_seconds": [slot.longest for slot in slots],
        "rows_in": [slot.rows_in for slot in slots],
        "rows_out": [slot.rows_out for slot in slots],
        "state_rows": [slot.state_rows for slot in slots],
        "state_bytes": [slot.state_bytes for slot in slots],
        "lag": {
            name: [slot.operators[name].lag if name in slot.operators else None for slot in slots] for name in names
        },
    }


def _time(value: int | None, unit: TimeUnit) -> dict[str, Any] | None:
    """An event time: microseconds since 1970, or rows, and the same in words."""
    if value is None:
        return None
    scale = 1 if unit is TimeUnit.ROWS else None
    return {"value": value, "text": time_text(value, scale)}


def _span(value: int | None, unit: TimeUnit) -> dict[str, Any] | None:
    return None if value is None else {"value": value, "text": span_text(value, unit)}
