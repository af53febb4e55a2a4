"""``make demo``: a year of flights and weather, joined as streams, shown, and checked against a batch answer."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import duckdb
from rich.console import Console

from watersmeet.cli.interrupt import interruptible
from watersmeet.cli.progress import screen, summary
from watersmeet.cli.rows import show_table
from watersmeet.cli.run import follow
from watersmeet.cli.spark import session_of
from watersmeet.demo.batch import compare
from watersmeet.demo.data import write_events
from watersmeet.errors import WatersmeetError

_JOB = Path(__file__).with_name("demo.sql")
_SAMPLES = {
    "turnarounds": "SELECT tailnum, origin, dest, ts, next_dest, next_ts FROM result "
    "ORDER BY ts, flight_id, next_ts LIMIT 5",
    "flight_weather": "SELECT carrier, flight, origin, dest, ts, reported, temp, wind_speed FROM result "
    "ORDER BY ts, flight_id LIMIT 5",
    "flight_weather_changes": "SELECT CASE WHEN _tp_delta > 0 THEN '+' ELSE '-' END AS op, flight_id, reported, temp "
    "FROM result WHERE flight_id IN (SELECT flight_id FROM result WHERE _tp_delta < 0 ORDER BY ALL LIMIT 1) "
    "ORDER BY flight_id, _tp_delta",
}


def main(folder: Path = Path("demo-out")) -> None:
    """Write the events, run the job, show its results; ``WatersmeetError`` where they differ from the batch answer."""
    console = Console(stderr=True)
    data = write_events(folder / "events")
    console.print(f"{data.flight_rows:,} flights and {data.weather_rows:,} weather reports as event files in {folder}")
    for old in ("workspace", "results"):
        shutil.rmtree(folder / old, ignore_errors=True)
    from watersmeet.runtime.query import QueryMode, RunningQuery

    queries: list[RunningQuery] = []
    with session_of(folder / "workspace") as session, interruptible() as interrupt:
        started = time.monotonic()
        try:
            with screen() as shown:
                follow(session, job_text(folder), QueryMode.BOUNDED, None, queries, shown, interrupt)
        finally:
            for query in queries:
                query.stop()
        seconds = time.monotonic() - started
    console.print(summary(queries))
    if interrupt.asked:
        raise SystemExit(interrupt.exit_code)
    _show_samples(folder / "results", console)
    comparisons = compare(data, folder / "results")
    for each in comparisons:
        verdict = "equal to" if each.is_equal else f"{each.missing} missing, {each.unexpected} unexpected against"
        console.print(f"{each.name}: {each.rows:,} rows, {verdict} DuckDB's batch answer")
    console.print(f"all joins in {seconds:.0f} seconds; results in {folder}/results")
    if not all(each.is_equal for each in comparisons):
        raise WatersmeetError("the streaming results differ from the batch answer")


def job_text(folder: Path) -> str:
    """The job in demo.sql, which names its folders as seen from ``folder``, with their whole paths."""
    text = _JOB.read_text()
    for inner in ("events", "results"):
        text = text.replace(f"'{inner}/", f"'{folder.absolute()}/{inner}/")
    return text


def _show_samples(results: Path, console: Console) -> None:
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        for name, sql in _SAMPLES.items():
            console.print(f"\n{name}")
            con.register("result", con.read_parquet(f"{results / name}/*.parquet").to_arrow_table())
            rows = con.execute(sql)
            columns = tuple(column[0] for column in rows.description or ())
            show_table(
                columns, [tuple("NULL" if value is None else str(value) for value in row) for row in rows.fetchall()]
            )
