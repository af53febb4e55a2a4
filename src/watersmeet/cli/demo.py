"""``watersmeet demo``: joins a year of flights, weather and aircraft, and compares the results with a batch query."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from watersmeet.cli.interrupt import interruptible
from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.runtime.query import RunningQuery

_FOLDER = Path("demo-out")
# The queries take a minute, in which the JVM's second compiler costs more time than it saves.
_SHORT_RUN = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def demo() -> None:
    """Join a year of real flights with hourly weather and a table of aircraft, and print some results."""
    from watersmeet.cli.rows import err, show_table
    from watersmeet.demo.batch import compare
    from watersmeet.demo.data import write_events
    from watersmeet.demo.job import job_text, samples

    data = write_events(_FOLDER / "events")
    for old in (_FOLDER / "workspace", _FOLDER / "results"):
        if old.exists():
            shutil.rmtree(old)
    report = err().print
    report(f"{data.flight_rows:,} flights and {data.weather_rows:,} weather reports as event files in {_FOLDER}")
    seconds = _run(job_text(_FOLDER))
    for name, columns, rows in samples(_FOLDER / "results"):
        report(f"\n{name}")
        show_table(columns, [[None if value is None else str(value) for value in row] for row in rows])
    comparisons = compare(data, _FOLDER / "results")
    for each in comparisons:
        verdict = "equal to" if each.is_equal else f"{each.missing} missing, {each.unexpected} unexpected against"
        report(f"{each.name}: {each.rows:,} rows, {each.padded:,} without a partner; {verdict} DuckDB's batch answer")
    report(f"all joins in {seconds:.0f} seconds; results in {_FOLDER}/results")
    if not all(each.is_equal for each in comparisons):
        raise WatersmeetError("the streaming results differ from the batch answer")


def _run(job: str) -> float:
    """Run the job to its end; return the seconds that its queries took."""
    from watersmeet.cli.progress import print_summary, screen
    from watersmeet.cli.run import follow
    from watersmeet.cli.spark import session_of
    from watersmeet.runtime.query_mode import QueryMode

    queries: list[RunningQuery] = []
    with session_of(_FOLDER / "workspace", config=_SHORT_RUN) as session, interruptible() as interrupt:
        started = time.monotonic()
        try:
            with screen() as shown:
                follow(session, job, QueryMode.BOUNDED, None, queries, shown, interrupt, side_by_side=True)
        finally:
            for query in queries:
                query.stop()
        seconds = time.monotonic() - started
    print_summary(queries)
    if interrupt.asked:
        raise typer.Exit(interrupt.exit_code)
    return seconds
