"""Watersmeet's metrics, in one list.

Names and units are by OpenTelemetry's conventions; Prometheus' follow by the rules by which collectors translate them:
dots become underscores, units and ``_total`` are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from watersmeet.expressions.event_time import TimeUnit
from watersmeet.runtime.report import OperatorReport
from watersmeet.runtime.status import OperatorStatus, QueryState, QueryStatus

#: The values of a metric's labels, and its number.
Sample = tuple[tuple[str, ...], float]


class Kind(Enum):
    """How a number behaves."""

    COUNTER = "counter"  # it only grows, over restarts too where it counts since the query began
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name and unit by OpenTelemetry's conventions, its labels, and how to read it from a query."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[QueryStatus], Iterator[Sample]]

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, without ``_total``."""
        suffix = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}.get(self.unit, "")
        return self.name.replace(".", "_") + suffix


def _of_query(value: Callable[[QueryStatus], float | None]) -> Callable[[QueryStatus], Iterator[Sample]]:
    def samples(status: QueryStatus) -> Iterator[Sample]:
        found = value(status)
        if found is not None:
            yield (status.name,), found

    return samples


def _of_operators(value: Callable[[OperatorStatus], float | None]) -> Callable[[QueryStatus], Iterator[Sample]]:
    def samples(status: QueryStatus) -> Iterator[Sample]:
        for operator in status.operators:
            found = value(operator)
            if found is not None:
                yield (status.name, operator.name), found

    return samples


def _of_inputs(values: Callable[[OperatorReport], Mapping[str, float]]) -> Callable[[QueryStatus], Iterator[Sample]]:
    def samples(status: QueryStatus) -> Iterator[Sample]:
        for operator in status.operators:
            for label, value in values(operator.report).items():
                yield (status.name, operator.name, label), value

    return samples


def _states(status: QueryStatus) -> Iterator[Sample]:
    for state in QueryState:
        yield (status.name, state.value), float(status.state is state)


def _evicted(status: QueryStatus) -> Iterator[Sample]:
    for operator in status.operators:
        for key, count in operator.report.evicted.items():
            label, _, reason = key.rpartition(".")
            yield (status.name, operator.name, label, reason), count


def _seconds(value: int | None, report: OperatorReport) -> float | None:
    """An event time or a length of it in seconds; None where event time counts rows."""
    return None if value is None or report.unit is TimeUnit.ROWS else value / 1_000_000


def _input_frontiers(report: OperatorReport) -> dict[str, float]:
    found = {label: _seconds(value, report) for label, value in report.input_frontiers.items()}
    return {label: value for label, value in found.items() if value is not None}


_QUERY, _OPERATOR, _INPUT = ("query",), ("query", "operator"), ("query", "operator", "input")
_COUNTER, _GAUGE = Kind.COUNTER, Kind.GAUGE


def _rows_in(status: QueryStatus) -> Iterator[Sample]:
    """What operators took from streams: results that they take from each other are rows of no source."""
    for operator in status.operators:
        for label, rows in operator.report.rows_in.items():
            if label in status.report.rows_in:
                yield (status.name, operator.name, label), rows


def _rows(name: str, field: str, text: str) -> Metric:
    """What became of rows, from 0 on for every input: rates see no first value, and no sum with what is missing."""

    def counts(report: OperatorReport) -> dict[str, float]:
        return {**dict.fromkeys(report.rows_in, 0), **getattr(report, field)}

    return Metric(f"watersmeet.rows.{name}", _COUNTER, "{row}", text, _INPUT, _of_inputs(counts))


METRICS: Sequence[Metric] = (
    Metric(
        "watersmeet.query.state",
        _GAUGE,
        "",
        "1 for the state that the query is in (running, waiting, ended, stopped, failed), 0 for the others.",
        ("query", "state"),
        _states,
    ),
    Metric(
        "watersmeet.query.start_time",
        _GAUGE,
        "s",
        "When this run of the query began, since 1970.",
        _QUERY,
        _of_query(lambda status: status.history.started),
    ),
    Metric(
        "watersmeet.query.failed_runs",
        _COUNTER,
        "{run}",
        "Runs of Spark's query that failed; after most of them another one went on.",
        _QUERY,
        _of_query(lambda status: status.history.failed_runs),
    ),
    Metric(
        "watersmeet.run.progress",
        _GAUGE,
        "1",
        "How much of a bounded or draining run is done, from 0 to 1; not where that is not known.",
        _QUERY,
        _of_query(lambda status: None if status.report.progress is None else status.report.progress.fraction),
    ),
    Metric(
        "watersmeet.batches",
        _COUNTER,
        "{batch}",
        "Batches (in real time: epochs) that were committed in this run.",
        _QUERY,
        _of_query(lambda status: status.report.batches),
    ),
    Metric(
        "watersmeet.batch.duration",
        _COUNTER,
        "s",
        "Time that the batches of this run took.",
        _QUERY,
        _of_query(lambda status: status.history.busy_ms / 1000),
    ),
    Metric(
        "watersmeet.last_batch.duration",
        _GAUGE,
        "s",
        "Time that the last batch took.",
        _QUERY,
        _of_query(lambda status: None if status.history.last is None else status.history.last.milliseconds / 1000),
    ),
    Metric(
        "watersmeet.last_batch.time",
        _GAUGE,
        "s",
        "When the last batch was reported, since 1970.",
        _QUERY,
        _of_query(lambda status: None if status.history.last is None else status.history.last.ended),
    ),
    Metric(
        "watersmeet.rows.out",
        _COUNTER,
        "{row}",
        "Result rows that were handed to the sink in this run.",
        _QUERY,
        _of_query(lambda status: status.report.rows_out),
    ),
    Metric(
        "watersmeet.rows.in",
        _COUNTER,
        "{row}",
        "Rows that came from a stream: used, filtered, late or quarantined.",
        _INPUT,
        _rows_in,
    ),
    _rows("used", "used", "Rows that took part in the operator."),
    _rows("filtered", "filtered", "Rows that a condition dropped before they were packed."),
    _rows("late", "late", "Rows behind the frontier."),
    _rows("reopened", "reopened", "Rows behind the frontier that ALLOWED LATENESS let in."),
    _rows("quarantined", "quarantined", "Rows that could not be read."),
    _rows("expired", "expired", "Rows that left a join without a window by their age."),
    Metric(
        "watersmeet.rows.evicted",
        _COUNTER,
        "{row}",
        "Rows that left a join's state because of a limit.",
        (*_INPUT, "reason"),
        _evicted,
    ),
    Metric(
        "watersmeet.input.state.rows",
        _GAUGE,
        "{row}",
        "Rows of an input in the operator's state.",
        _INPUT,
        _of_inputs(lambda report: report.held),
    ),
    Metric(
        "watersmeet.input.state.size",
        _GAUGE,
        "By",
        "What the rows of an input in the operator's state take.",
        _INPUT,
        _of_inputs(lambda report: report.held_bytes),
    ),
    Metric(
        "watersmeet.input.frontier",
        _GAUGE,
        "s",
        "The frontier of an input, an event time since 1970; not where event time counts rows.",
        _INPUT,
        _of_inputs(_input_frontiers),
    ),
    Metric(
        "watersmeet.operator.results",
        _COUNTER,
        "{row}",
        "Rows that the operator gave.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.results),
    ),
    Metric(
        "watersmeet.operator.frontier",
        _GAUGE,
        "s",
        "The operator's frontier, an event time since 1970; not where event time counts rows.",
        _OPERATOR,
        _of_operators(lambda operator: _seconds(operator.report.frontier, operator.report)),
    ),
    Metric(
        "watersmeet.operator.frontier_lag",
        _GAUGE,
        "s",
        "How far the frontier is behind the newest row; not where event time counts rows.",
        _OPERATOR,
        _of_operators(lambda operator: _seconds(operator.report.lag, operator.report)),
    ),
    Metric(
        "watersmeet.operator.state.size",
        _GAUGE,
        "By",
        "What the operator's state takes.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.state_bytes),
    ),
    Metric(
        "watersmeet.operator.state.disk_size",
        _GAUGE,
        "By",
        "What of the operator's state lies in files of the workers.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.disk_bytes),
    ),
    Metric(
        "watersmeet.operator.state.rows",
        _GAUGE,
        "{row}",
        "Rows in the operator's state.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.state_rows),
    ),
    Metric(
        "watersmeet.operator.hot_keys",
        _GAUGE,
        "{key}",
        "Keys whose rows are spread over all buckets.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.hot_keys),
    ),
    Metric(
        "watersmeet.operator.steps",
        _COUNTER,
        "{step}",
        "Steps that the operator took in all its buckets.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.steps),
    ),
    Metric(
        "watersmeet.operator.worker_memory",
        _GAUGE,
        "By",
        "The most memory that a worker process with a bucket of the operator has had resident.",
        _OPERATOR,
        _of_operators(lambda operator: operator.report.worker_bytes),
    ),
)
