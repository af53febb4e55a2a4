"""What the demo's queries must come to: the same joins as one batch each, by DuckDB over the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from watersmeet.demo.data import DemoData

_WEATHER = "w.origin = f.origin AND w.ts <= f.ts AND w.ts > f.ts - INTERVAL 1 HOUR"

#: For each result folder: the batch query, and how the folder's rows compare with it.
BATCH = {
    "turnarounds": (
        """SELECT f.flight_id, f.tailnum, f.origin, f.dest, f.ts, n.flight_id AS next_flight_id, n.dest AS next_dest,
                  n.ts AS next_ts
           FROM flights f JOIN flights n
           ON f.tailnum = n.tailnum AND n.ts > f.ts AND n.ts <= f.ts + INTERVAL 12 HOURS""",
        "SELECT * FROM result",
    ),
    "flight_weather": (
        f"""SELECT f.flight_id, f.carrier, f.flight, f.origin, f.dest, f.ts, f.dep_delay, w.ts AS reported, w.temp,
                   w.wind_speed, w.visib
            FROM flights f LEFT JOIN weather w ON {_WEATHER}""",
        "SELECT * FROM result",
    ),
    "flight_weather_changes": (
        f"SELECT f.flight_id, w.ts AS reported, w.temp FROM flights f LEFT JOIN weather w ON {_WEATHER}",
        # a changelog counts for what its +1 and -1 add up to
        """SELECT flight_id, reported, temp FROM (
             SELECT flight_id, reported, temp, sum(_tp_delta) AS weight FROM result GROUP BY ALL HAVING weight <> 0
           ), range(weight::BIGINT)""",
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a streaming result compares with the batch answer; ``missing`` and ``unexpected`` are counts of rows."""

    name: str
    rows: int
    missing: int
    unexpected: int

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same rows, each as often."""
        return self.missing == 0 and self.unexpected == 0


def compare(data: DemoData, results: Path) -> list[Comparison]:
    """Each result folder under ``results`` against its batch answer, as multisets of rows."""
    found = []
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("flights", con.read_parquet(f"{data.flights}/*.parquet").to_arrow_table())
        con.register("weather", con.read_json(f"{data.weather}/*.json", columns=_WEATHER_TYPES).to_arrow_table())
        for name, (batch, streamed) in BATCH.items():
            con.register("result", con.read_parquet(f"{results / name}/*.parquet").to_arrow_table())
            counts = con.execute(
                f"""WITH batch AS ({batch}), streamed AS ({streamed})
                    SELECT (SELECT count(*) FROM batch),
                           (SELECT count(*) FROM (FROM batch EXCEPT ALL FROM streamed)),
                           (SELECT count(*) FROM (FROM streamed EXCEPT ALL FROM batch))"""
            ).fetchall()
            found.append(Comparison(name, *counts[0]))
    return found


_WEATHER_TYPES = {"ts": "TIMESTAMPTZ", "origin": "VARCHAR", "temp": "DOUBLE", "wind_speed": "DOUBLE", "visib": "DOUBLE"}
