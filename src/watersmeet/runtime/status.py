"""What a running query looks like now: one immutable value that the live page, metrics and logs read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from watersmeet.plan.explain import explain, explain_set, headlines
from watersmeet.plan.operator_tree import TreeNode, operator_tree
from watersmeet.runtime.history import History, OperatorSample
from watersmeet.runtime.job import Job
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.report import OperatorReport, Report
from watersmeet.settings.secrets import hide


class QueryState(StrEnum):
    """Whether a query runs."""

    RUNNING = "running"
    WAITING = "waiting"  # for another system (an outage)
    ENDED = "ended"  # by itself: a bounded or draining run
    STOPPED = "stopped"  # by the user
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """An operator now: what it is, its report, and the rows that it took and gave a second of late."""

    name: str
    description: str
    report: OperatorReport
    rows_in: int
    rows_in_rate: float
    results_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """A query at ``time`` (Unix time).

    ``mode`` is how it treats the end of input (continuous, bounded, drain).  ``targets`` are the streams that it feeds,
    and ``explain`` is the text of EXPLAIN.
    """

    time: float
    name: str
    state: QueryState
    mode: str
    is_real_time: bool
    checkpoint: str
    targets: tuple[str, ...]
    tree: TreeNode
    operators: tuple[OperatorStatus, ...]
    report: Report
    history: History
    ended: float | None
    explain: str


def status_of(
    job: Job, mode: QueryMode, history: History, report: Report, state: QueryState, ended: float | None
) -> QueryStatus:
    """The status of a job now."""
    now, tree = time.time(), operator_tree(job.plan)
    targets = tuple(output.target for output in job.outputs)
    counters = history.counters
    text = explain_set(job.plan, targets, counters) if job.plan.is_shared else explain(job.plan, counters)
    return QueryStatus(
        time=now,
        name=job.name,
        state=state,
        mode=mode.value,
        is_real_time=job.plan.query.settings.is_real_time,
        checkpoint=job.checkpoint.folder,
        targets=targets,
        tree=tree,
        operators=operator_statuses(tree, headlines(job.plan), report, history, now),
        report=report,
        history=history,
        ended=ended,
        explain=hide(text),
    )


def operator_statuses(
    tree: TreeNode, descriptions: Mapping[str, str], report: Report, history: History, now: float
) -> tuple[OperatorStatus, ...]:
    """The operators of a query, the last one first, as its report and its history tell."""
    then, samples = history.earlier(now)
    seconds = max(now - then, 1.0)
    nothing = OperatorSample(0, 0, 0, 0, None)

    def status(node: TreeNode) -> OperatorStatus:
        own = report.operators.get(node.name, OperatorReport())
        before = samples.get(node.name, nothing)
        unpacked = list(_unpacked(node))
        given = sum(report.operators[name].results for name in unpacked if name in report.operators)
        given_before = sum(samples.get(name, nothing).results for name in unpacked)
        rows_in = sum(own.rows_in.values()) + given
        return OperatorStatus(
            name=node.name,
            description=descriptions.get(node.name, ""),
            report=own,
            rows_in=rows_in,
            rows_in_rate=max(rows_in - before.rows_in - given_before, 0) / seconds,
            results_rate=max(own.results - before.results, 0) / seconds,
        )

    return tuple(status(node) for node in tree.operators)


def _unpacked(node: TreeNode) -> Iterator[str]:
    """The operators below whose results reach this one without being packed, and so without being counted again."""
    for below in node.below:
        if not below.is_source and not below.counted_as:
            yield below.name
