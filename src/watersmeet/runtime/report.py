"""What a running query reports: its counters, by what they count."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from watersmeet.engine.outbox import INPUT_FRONTIER
from watersmeet.engine.step_times import STEP_TIME, percentile
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.runtime.metrics import kernel_counters
from watersmeet.runtime.run_progress import RunProgress

_MILLISECOND = 1_000
"""In units of internal event time."""

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Counts of rows by side, named after the alias of the stream that dates them.

    For sources, ``rows_in`` = ``used`` + ``filtered`` + ``late`` + ``quarantined``.  ``reopened``: used rows behind the
    frontier (ALLOWED LATENESS).  ``expired``, ``evicted`` (by side and reason: ``o.lru``): used rows that left a join
    by their age (join_ttl) or because of a limit.
    """

    rows_in: Counts = field(default_factory=dict)
    used: Counts = field(default_factory=dict)
    filtered: Counts = field(default_factory=dict)
    late: Counts = field(default_factory=dict)
    reopened: Counts = field(default_factory=dict)
    quarantined: Counts = field(default_factory=dict)
    expired: Counts = field(default_factory=dict)
    evicted: Counts = field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        """Each count over all sides, by its name."""
        return {name: sum(getattr(self, name).values()) for name in _BY_INPUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport(RowCounts):
    """What one operator has done since the query began, and what it holds.

    - ``held`` rows and ``held_bytes`` of each side are in the state.
    - ``results`` counts rows that it gave.  Windowed joins count what ``matched``: pairs, or left rows of semi and anti
      joins (None: other operators).
    - ``frontier`` and ``newest`` event time, in microseconds since 1970, or rows (None: not known), and the ``unit`` of
      the event time.
    - ``input_frontiers`` are those of its inputs, by label; the least of them holds ``frontier`` back.
    - ``hot_keys`` is how many keys' rows are spread over its buckets (None: it spreads none).
    - ``steps`` it took, of all buckets; half of them took at most ``step_p50`` seconds, 95% ``step_p95``, about.
    - ``disk_bytes`` of the ``state_bytes`` are in files of the workers: in hybrid mode, and where memory is too little.
    - ``worker_bytes`` is the most memory that a process with a bucket of it has had resident.
    """

    held: Counts = field(default_factory=dict)
    held_bytes: Counts = field(default_factory=dict)
    results: int = 0
    matched: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    disk_bytes: int = 0
    worker_bytes: int = 0
    frontier: int | None = None
    newest: int | None = None
    input_frontiers: Counts = field(default_factory=dict)
    hot_keys: int | None = None
    unit: TimeUnit = TimeUnit.TIMESTAMP
    steps: int = 0
    step_p50: float | None = None
    step_p95: float | None = None

    @property
    def lag(self) -> int | None:
        """How far the frontier lies behind the newest row of any side; None before there are both."""
        return None if self.newest is None or self.frontier is None else max(self.newest - self.frontier, 0)

    @property
    def match_rate(self) -> float | None:
        """Matches for each row used, of all sides; None without rows."""
        used = sum(self.used.values())
        return self.matched / used if used and self.matched is not None else None

    @property
    def lag_text(self) -> str:
        """The lag in words, from a millisecond on in whole ones; empty if it is not known."""
        if self.lag is None:
            return ""
        counts_time = self.unit is not TimeUnit.ROWS and self.lag >= _MILLISECOND
        return span_text(self.lag - self.lag % _MILLISECOND if counts_time else self.lag, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(RowCounts):
    """Counts since the query began, over restarts, and the size of its state; rows are counted over all operators.

    ``rows_in``, ``used`` and ``filtered`` have only the streams: results of subqueries that are packed again are rows
    of one operator, and not of the query.  Rows count as late, and so on, wherever they were lost.
    ``batches`` and ``rows_out`` count this run alone; ``rows_in_rate`` is the number of rows in a second, of late.
    ``operators`` has each operator by its name, and ``counters``
    what single kernels count (``join_1.NAME``).  ``waiting`` says for which system the query waits, and why.
    ``progress`` is how much of this run is done (None: it runs until it is stopped).
    """

    batches: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    rows_in_rate: float = 0.0
    last_batch_ms: int = 0
    waiting: str = ""
    operators: Mapping[str, OperatorReport] = field(default_factory=dict)
    counters: Counts = field(default_factory=dict)
    progress: RunProgress | None = None

    @property
    def lag_text(self) -> str:
        """The longest lag of an operator, in words; empty if none is known."""
        known = [operator for operator in self.operators.values() if operator.lag is not None]
        return max(known, key=lambda operator: operator.lag or 0).lag_text if known else ""


def report_of(
    counters: Counts,
    *,
    batches: int,
    rows_out: int,
    last_batch_ms: int,
    streams: Collection[str],
    rows_in_rate: float = 0.0,
    waiting: str = "",
    units: Mapping[str, TimeUnit] | None = None,
    progress: RunProgress | None = None,
) -> Report:
    """The report that a query's counters (``OPERATOR.NAME`` or ``OPERATOR.NAME.INPUT``) add up to.

    ``streams`` are the aliases of the streams that the query reads, ``units`` those of the event times that date the
    rows of each operator.
    """
    named: dict[str, dict[str, int]] = defaultdict(dict)
    for name, value in counters.items():
        operator, rest = name.split(".", 1)
        named[operator][rest] = value
    operators = {
        operator: _operator(own, (units or {}).get(operator, TimeUnit.TIMESTAMP)) for operator, own in named.items()
    }
    by_input = {each: _summed(getattr(operator, each) for operator in operators.values()) for each in _BY_INPUT}
    for name in ("rows_in", "used", "filtered"):
        by_input[name] = {alias: rows for alias, rows in by_input[name].items() if alias in streams}
    return Report(
        batches=batches,
        rows_out=rows_out,
        state_rows=sum(each.state_rows for each in operators.values()),
        state_bytes=sum(each.state_bytes for each in operators.values()),
        rows_in_rate=rows_in_rate,
        last_batch_ms=last_batch_ms,
        waiting=waiting,
        operators=operators,
        counters=kernel_counters(counters),
        progress=progress,
        **by_input,
    )


_BY_INPUT = ("rows_in", "used", "filtered", "late", "reopened", "quarantined", "expired", "evicted")
_BY_SIDE = (*_BY_INPUT[1:], "held", "held_bytes")


def _summed(counts: Iterable[Counts]) -> Counts:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _operator(counters: Counts, unit: TimeUnit) -> OperatorReport:
    by_side: dict[str, dict[str, int]] = defaultdict(dict)
    for name, value in counters.items():
        counter, *side = name.split(".", 1)
        if side:
            by_side[counter][side[0]] = value
    steps = {int(number): count for number, count in by_side[STEP_TIME].items()}
    frontier = counters.get("frontier", NEVER)
    return OperatorReport(
        rows_in=by_side["in"],
        **{each: by_side[each] for each in _BY_SIDE},
        results=counters.get("results", 0),
        matched=counters.get("matched"),
        state_rows=counters.get("state_rows", 0),
        state_bytes=counters.get("state_bytes", 0),
        disk_bytes=counters.get("disk_bytes", 0),
        worker_bytes=counters.get("worker_bytes", 0),
        frontier=None if frontier in (NEVER, FOREVER) else frontier,
        newest=max(by_side["newest"].values(), default=None),
        input_frontiers=by_side[INPUT_FRONTIER],
        hot_keys=counters.get("hot_keys"),
        unit=unit,
        steps=sum(steps.values()),
        step_p50=percentile(steps, 0.5),
        step_p95=percentile(steps, 0.95),
    )
