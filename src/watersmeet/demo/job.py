"""The demo's job, demo.sql, and a few rows of its results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

_JOB = Path(__file__).with_name("demo.sql")
_SAMPLES = {
    "turnarounds": "SELECT tailnum, origin, dest, ts, next_dest, next_ts FROM result "
    "ORDER BY ts, flight_id, next_ts LIMIT 5",
    "flight_weather": "SELECT carrier, flight, origin, dest, ts, reported, temp, wind_speed FROM result "
    "ORDER BY ts, flight_id LIMIT 5",
    "flight_weather_changes": "SELECT CASE WHEN _tp_delta > 0 THEN '+' ELSE '-' END AS op, flight_id, reported, temp "
    "FROM result WHERE flight_id IN (SELECT flight_id FROM result WHERE _tp_delta < 0 ORDER BY ALL LIMIT 1) "
    "ORDER BY flight_id, _tp_delta",
    "weather_at_departure": "SELECT carrier, flight, origin, ts, dep_delay, reported, temp, wind_speed FROM result "
    "ORDER BY ts - reported DESC, flight_id LIMIT 5",
    "next_flights": "SELECT tailnum, origin, dest, ts, next_dest, next_ts FROM result ORDER BY ts, flight_id LIMIT 5",
    "flight_planes": "SELECT tailnum, ts, built, manufacturer, model, seats FROM result ORDER BY ts, flight_id LIMIT 5",
}


def job_text(folder: Path) -> str:
    """Return the job in demo.sql, with its folders as absolute paths in ``folder``."""
    text = _JOB.read_text()
    for inner in ("events", "results"):
        text = text.replace(f"'{inner}/", f"'{folder.absolute()}/{inner}/")
    return text


def samples(results: Path) -> Iterator[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
    """Yield for each result folder under ``results``: its name, and the columns and values of a few rows."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        for name, sql in _SAMPLES.items():
            con.register("result", con.read_parquet(f"{results / name}/*.parquet").to_arrow_table())
            rows = con.execute(sql)
            yield name, tuple(column[0] for column in rows.description or ()), rows.fetchall()
