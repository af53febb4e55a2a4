"""What a running query looks like now: one immutable value that the live page, metrics and logs read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

from watersmeet.plan.explain import explain, explain_set, headlines
from watersmeet.plan.operator_tree import TreeNode, operator_tree
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.worker_specs import time_units
from watersmeet.runtime.history import History, OperatorSample
from watersmeet.runtime.job import Job
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.report import Counts, OperatorReport, Report
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

    ``mode`` is how it treats the end of input (continuous, bounded, drain).  ``targets`` are the streams that it feeds.
    ``write_plan`` returns the text of EXPLAIN, which not every reader needs.
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
    write_plan: Callable[[], str]

    @property
    def explain(self) -> str:
        """The text of EXPLAIN, with the figures of the last batch."""
        return self.write_plan()


class PlanWords:
    """What a job's plan says of itself: made once, EXPLAIN at most once a batch, and only for those who show it."""

    def __init__(self, plan: PhysicalPlan, targets: Sequence[str]) -> None:
        self._plan = plan
        self.targets = tuple(targets)
        self.streams = frozenset(part.input.alias for part in plan.streams)
        self.units = time_units(plan)
        self._explained: tuple[Counts, str] | None = None

    @cached_property
    def tree(self) -> TreeNode:
        """The operators, as EXPLAIN draws them."""
        return operator_tree(self._plan)

    @cached_property
    def headlines(self) -> Mapping[str, str]:
        """What each operator does, by its name."""
        return headlines(self._plan)

    def explain(self, counters: Counts) -> str:
        """The text of EXPLAIN with these counters, which nobody changes later."""
        explained = self._explained
        if explained is None or explained[0] is not counters:
            plan = self._plan
            text = explain_set(plan, self.targets, counters) if plan.is_shared else explain(plan, counters)
            self._explained = explained = counters, hide(text)
        return explained[1]


def status_of(
    job: Job,
    words: PlanWords,
    mode: QueryMode,
    history: History,
    report: Report,
    state: QueryState,
    ended: float | None,
) -> QueryStatus:
    """The status of a job now."""
    now = time.time()
    return QueryStatus(
        time=now,
        name=job.name,
        state=state,
        mode=mode.value,
        is_real_time=job.plan.query.settings.is_real_time,
        checkpoint=job.checkpoint.folder,
        targets=words.targets,
        tree=words.tree,
        operators=operator_statuses(words.tree, words.headlines, report, history, now),
        report=report,
        history=history,
        ended=ended,
        write_plan=partial(words.explain, history.counters),
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
