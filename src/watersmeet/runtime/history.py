"""What a query has reported so far: its counters, and its batches of the last hour, in slots of five seconds.

All values are immutable, and bounded: a query that runs for a year keeps no more than one that runs for an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from watersmeet.runtime.metrics import updated
from watersmeet.runtime.report import Counts, OperatorReport, Report

SLOT_SECONDS = 5
#: An hour.
SLOTS = 720
#: The time over which rates are taken, if the query runs that long.
RATE_SECONDS = 30.0
_FAILURES = 10
_RECENT = 100


@dataclass(frozen=True, slots=True)
class OperatorSample:
    """What an operator had counted, and held, after the last batch of a slot."""

    rows_in: int
    results: int
    state_rows: int
    state_bytes: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The batches that ended in five seconds, of which ``began`` is the first, in seconds since 1970.

    The last one ``ended`` then, and the longest took ``longest`` seconds.  ``rows_in`` and ``rows_out`` are those of
    its batches, ``operators`` and the state stand as its last one left them.
    """

    began: int
    ended: float
    batches: int = 0
    seconds: float = 0
    longest: float = 0
    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    operators: Mapping[str, OperatorSample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that ended a run of a query, and when.  The query ``went_on`` if another run followed."""

    time: float
    kind: str
    message: str
    went_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch, or an epoch, that Spark has committed: when, its counters and result rows, and how long it took."""

    number: int
    ended: float
    counters: Counts
    rows_out: int
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What is kept of one of the last batches: its rows by what became of them, and those since the query began."""

    number: int
    ended: float
    milliseconds: int
    rows_out: int
    rows: Counts
    totals: Counts
    state_rows: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a query has reported since it was ``started`` (Unix time, like all times here).

    ``counters`` count since the query began, ``batches``, ``rows_out`` and ``busy_ms`` in this run.  ``base`` holds the
    operators as they were at the start, before the first of the ``slots``.  ``recent`` has the last hundred batches:
    who looks now and then sees each of them.
    """

    started: float
    counters: Counts
    batches: int = 0
    rows_out: int = 0
    busy_ms: int = 0
    last: Batch | None = None
    base: Mapping[str, OperatorSample] = field(default_factory=dict)
    slots: tuple[Slot, ...] = ()
    recent: tuple[Committed, ...] = ()
    failures: tuple[Failure, ...] = ()
    failed_runs: int = 0

    @property
    def last_batch_ms(self) -> int:
        """How long the last batch took."""
        return 0 if self.last is None else self.last.milliseconds

    def based_on(self, report: Report) -> History:
        """The history of a query that starts with what an earlier run has reported."""
        return replace(self, base={name: _sample(each) for name, each in report.operators.items()})

    def after(self, batch: Batch, report: Callable[[History], Report]) -> History:
        """The history after a batch; ``report`` is what the query reports with a history."""
        counted = replace(
            self,
            counters=updated(self.counters, batch.counters),
            batches=self.batches + 1,
            rows_out=self.rows_out + batch.rows_out,
            busy_ms=self.busy_ms + batch.milliseconds,
            last=batch,
        )
        before, now = report(self), report(counted)
        totals, known = now.totals(), before.totals()
        rows = {name: count - known[name] for name, count in totals.items()}
        committed = Committed(
            number=batch.number,
            ended=batch.ended,
            milliseconds=batch.milliseconds,
            rows_out=batch.rows_out,
            rows=rows,
            totals=totals,
            state_rows=now.state_rows,
            state_bytes=now.state_bytes,
        )
        samples = {name: _sample(each) for name, each in now.operators.items()}
        began = int(batch.ended) // SLOT_SECONDS * SLOT_SECONDS
        last = self.slots[-1] if self.slots else None
        # where the clock was set back, the last slot takes the batch: the slots stay in order
        is_new = last is None or last.began < began
        slot = last if last is not None and not is_new else Slot(began=began, ended=batch.ended)
        seconds = batch.milliseconds / 1000
        slot = replace(
            slot,
            ended=batch.ended,
            batches=slot.batches + 1,
            seconds=slot.seconds + seconds,
            longest=max(slot.longest, seconds),
            rows_in=slot.rows_in + rows["rows_in"],
            rows_out=slot.rows_out + batch.rows_out,
            state_rows=now.state_rows,
            state_bytes=now.state_bytes,
            operators=samples,
        )
        earlier = self.slots if is_new else self.slots[:-1]
        recent = (*self.recent, committed)[-_RECENT:]
        return replace(counted, slots=(*earlier, slot)[-SLOTS:], recent=recent)

    def failed(self, failure: Failure) -> History:
        """The history after a failure; only the last few are kept."""
        return replace(self, failures=(*self.failures, failure)[-_FAILURES:], failed_runs=self.failed_runs + 1)

    def rows_in_rate(self, now: float) -> float:
        """Rows in a second since ``earlier``, over all streams."""
        then, _ = self.earlier(now)
        return sum(slot.rows_in for slot in self.slots if slot.ended > then) / max(now - then, 1.0)

    def earlier(self, now: float) -> tuple[float, Mapping[str, OperatorSample]]:
        """A time at least ``RATE_SECONDS`` and two batches ago, and the operators as they were then."""
        then = now - max(RATE_SECONDS, 2 * self.last_batch_ms / 1000)
        found = next((slot for slot in reversed(self.slots) if slot.ended <= then), None)
        return (self.started, self.base) if found is None else (found.ended, found.operators)


def _sample(operator: OperatorReport) -> OperatorSample:
    return OperatorSample(
        rows_in=sum(operator.rows_in.values()),
        results=operator.results,
        state_rows=operator.state_rows,
        state_bytes=operator.state_bytes,
        lag=operator.lag,
    )
