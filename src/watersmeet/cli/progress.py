"""Reports on running queries, on standard error: live on a terminal, else as plain lines; a summary at the end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from watersmeet.cli.live import View
from watersmeet.cli.rows import can_draw, drawing, err
from watersmeet.cli.run_bars import RunLines, bars
from watersmeet.cli.views import CurrentTable, show_of

if TYPE_CHECKING:
    from watersmeet.cli.json_log import JsonLog
    from watersmeet.connectors.console import Show
    from watersmeet.runtime.query import RunningQuery
    from watersmeet.runtime.report import OperatorReport, Report, RowCounts
    from watersmeet.sql.statements import Statement

#: The name under which outages are logged (runtime/outages.py, which this module imports only for types).
OUTAGES_LOG = "watersmeet.runtime.outages"
_PLAIN_LINES_SECONDS = 1.0
# The header of the table of queries and the lines around it.
_OTHER_LINES = 4


class Screen(Protocol):
    """Displays rows of queries and their progress."""

    def show_of(self, statement: Statement) -> Show:
        """Return the display for the rows of a statement's query."""

    def update(self, queries: Sequence[RunningQuery]) -> None:
        """Display what the queries report now."""


class PlainLines:
    """Prints a line for each query that has made progress or waits, at most once a second; prints tables again.

    A query whose one batch takes all there is has a line every ten seconds meanwhile.
    """

    def __init__(self, view: View = View.AUTO) -> None:
        self._view = view
        self._shown: dict[str, int] = {}
        self._waiting: dict[str, str] = {}
        self._run_lines = RunLines()
        self._due = 0.0

    def show_of(self, statement: Statement) -> Show:
        """Return the display for the rows of a statement's query."""
        return show_of(statement, self._view, in_place=False)

    def update(self, queries: Sequence[RunningQuery]) -> None:
        """Print a line for each query that has finished a batch since its last one, or has tried again in an outage."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _PLAIN_LINES_SECONDS
        for query in queries:
            report = query.report()
            if report.batches > self._shown.get(query.name, 0):
                self._shown[query.name] = report.batches
                err().print(progress_line(query.name, report), soft_wrap=True)
            elif (line := self._run_lines.line(query, now)) is not None:
                err().print(line, soft_wrap=True, markup=False)
            attempt = report.waiting.rpartition(",")[0]  # without the time, which always goes on
            if attempt and attempt != self._waiting.get(query.name):
                err().print(f"{query.name}: {report.waiting}", soft_wrap=True, markup=False)
            self._waiting[query.name] = attempt


class JsonLines:
    """Writes events to a log; prints tables again."""

    def __init__(self, log: JsonLog, view: View) -> None:
        self._log = log
        self._view = view

    def show_of(self, statement: Statement) -> Show:
        """Return the display for the rows of a statement's query."""
        return show_of(statement, self._view, in_place=False)

    def update(self, queries: Sequence[RunningQuery]) -> None:
        """Write what the queries have done since the last call."""
        self._log.update(queries)


class LiveTable:
    """Tables redrawn in place: the queries' current rows, and below them the progress of all queries."""

    def __init__(self, view: View = View.AUTO) -> None:
        self._view = view
        self._tables: list[CurrentTable] = []
        self._progress = Group()
        self._lines = 0

    def show_of(self, statement: Statement) -> Show:
        """Return the display for the rows of a statement's query."""
        show = show_of(statement, self._view, in_place=True)
        if isinstance(show, CurrentTable):
            self._tables.append(show)
        return show

    def update(self, queries: Sequence[RunningQuery]) -> None:
        """Store what the queries report now."""
        below: list[Table | Text] = [*bars(queries), *waiting_lines(queries)]
        self._progress = Group(progress_table(queries), *below)
        self._lines = len(queries) + len(below) + _OTHER_LINES

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Render all tables, which share the terminal's lines."""
        for table in self._tables:
            yield table.draw((options.max_height - self._lines) // len(self._tables))
        yield self._progress

    def end(self) -> None:
        """Print the rows that were drawn in place, so that they stay."""
        for table in self._tables:
            table.end()


@contextmanager
def screen(view: View = View.AUTO, *, draws: bool = True) -> Iterator[Screen]:
    """Yield live tables if both standard output and error are terminals, else plain lines, or if nothing is drawn."""
    with _without_warnings_of_outages():
        if not (draws and can_draw() and sys.stderr.isatty()):
            yield PlainLines(view)
            return
        table = LiveTable(view)
        try:
            with drawing(table):
                yield table
        finally:
            table.end()


@contextmanager
def _without_warnings_of_outages() -> Iterator[None]:
    """Keep the log from warning of what the screen shows."""
    log = logging.getLogger(OUTAGES_LOG)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def progress_line(name: str, report: Report) -> str:
    """Return a query's counts so far in one line."""
    batches = "batch" if report.batches == 1 else "batches"
    evicted = f"{total(report.evicted):,} evicted, " if report.evicted else ""
    lag = f"frontier {report.lag_text} behind, " if report.lag_text else ""
    done = "" if report.progress is None else f"; {report.progress.text}"
    return (
        f"{name}: {report.batches:,} {batches}, {total(report.rows_in):,} rows in ({report.rows_in_rate:,.0f}/s), "
        f"{report.rows_out:,} out, "
        f"{total(report.late):,} late, {total(report.quarantined):,} quarantined, {evicted}"
        f"{report.state_rows:,} rows of state, {lag}last batch {report.last_batch_ms:,} ms"
        f"{done}"
    )


def progress_table(queries: Sequence[RunningQuery]) -> Table:
    """Return a table of all queries' counts so far."""
    table = _table(
        *("query", "batches", "rows in", "rows/s", "rows out", "late", "quarantined", "state rows", "lag", "last batch")
    )
    for query in queries:
        report = query.report()
        table.add_row(
            Text(query.name),
            f"{report.batches:,}",
            f"{total(report.rows_in):,}",
            f"{report.rows_in_rate:,.0f}" if query.is_active else "",
            f"{report.rows_out:,}",
            f"{total(report.late):,}",
            f"{total(report.quarantined):,}",
            f"{report.state_rows:,}",
            report.lag_text,
            f"{report.last_batch_ms:,} ms" if query.is_active else "ended",
        )
    return table


def waiting_lines(queries: Sequence[RunningQuery]) -> list[Text]:
    """Return a line for each query that waits for another system."""
    found = ((query.name, query.report().waiting) for query in queries)
    return [
        Text(f"{name}: {waiting}", style="yellow", no_wrap=True, overflow="ellipsis")
        for name, waiting in found
        if waiting
    ]


def print_summary(queries: Sequence[RunningQuery]) -> None:
    """Print the summary of all queries, if there are any."""
    if queries:
        err().print(summary(queries))


def summary(queries: Sequence[RunningQuery]) -> Group:
    """Return tables that account for every input row, count the emitted rows, and show how operators fared.

    Input rows are used, filtered, late or quarantined.  Results that another operator takes have a table of their own:
    they did not come from outside.  Table rows whose counts do not add up are highlighted.
    """
    ways = ("rows in", "= used", "+ filtered", "+ late", "+ quarantined")
    inputs, taken = _table("query", "input", *ways), _table("query", "operator", "results taken as", *ways)
    outputs = _table("query", "batches this run", "rows out this run", "state rows", "state bytes")
    operators = _table("query", "operator", "results", "matches per row", "step p50", "p95", "lag", "largest worker")
    counted = _table("query", "counter", "count")
    for query in queries:
        report = query.report()
        for alias in report.rows_in:
            _account(inputs, (query.name, alias), report, alias)
        outputs.add_row(
            Text(query.name),
            f"{report.batches:,}",
            f"{report.rows_out:,}",
            f"{report.state_rows:,}",
            f"{report.state_bytes:,}",
        )
        for name, each in report.operators.items():
            operators.add_row(Text(query.name), Text(name), *_figures(each))
            for alias in (alias for alias in each.rows_in if alias not in report.rows_in):
                _account(taken, (query.name, name, alias), each, alias)
        for name, number in report.counters.items():
            if number:
                counted.add_row(Text(query.name), Text(name), f"{number:,}")
    tables = (inputs, taken, outputs, operators, counted)
    return Group(*(table for table in tables if table.row_count or table is outputs))


def _account(table: Table, names: Sequence[str], counts: RowCounts, alias: str) -> None:
    """Add what became of an input's rows."""
    rows, went = _of(counts.rows_in, alias), [_of(each, alias) for each in accounts(counts)]
    numbers = (f"{number:,}" for number in (rows, *went))
    table.add_row(*map(Text, names), *numbers, style="" if rows == sum(went) else "bold red")


def _figures(operator: OperatorReport) -> tuple[str, ...]:
    """Return the cells of an operator's figures; a figure that is not known is empty."""
    times = (operator.step_p50, operator.step_p95)
    return (
        f"{operator.results:,}",
        "" if operator.match_rate is None else f"{operator.match_rate:.2f}",
        *("" if seconds is None else f"{seconds * 1000:,.0f} ms" for seconds in times),
        operator.lag_text,
        f"{operator.worker_bytes / 1e6:,.0f} MB" if operator.worker_bytes else "",
    )


def accounts(report: RowCounts) -> tuple[Mapping[str, int], ...]:
    """Return the counts of rows used, filtered, late and quarantined, in the order of the summary's columns."""
    return report.used, report.filtered, report.late, report.quarantined


def total(counts: Mapping[str, int]) -> int:
    """Return the sum over all inputs."""
    return sum(counts.values())


def _of(counts: Mapping[str, int], alias: str) -> int:
    return counts.get(alias, 0)


def _table(*names: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(
            name,
            justify="left" if name in ("query", "input", "operator", "results taken as", "counter") else "right",
            no_wrap=name != "query",
        )
    return table
