"""The expected results of the demo's queries: the same joins as batch queries, by DuckDB over the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from watersmeet.demo.data import DemoData

# A report within the hour belongs to the flight's calendar hour or the one before.  With the hour as a key DuckDB does
# not compare a flight with all reports of its airport.
_LAST_REPORTS = """
    hours AS (
      SELECT *, unnest([date_trunc('hour', ts), date_trunc('hour', ts) - INTERVAL 1 HOUR]) AS hour FROM flights
    ), reports AS (
      SELECT f.flight_id, w.ts AS reported, w.temp, w.wind_speed, w.visib
      FROM hours f JOIN weather w
      ON w.origin = f.origin AND date_trunc('hour', w.ts) = f.hour AND w.ts <= f.ts AND w.ts > f.ts - INTERVAL 1 HOUR
    )"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The expected result of a query."""

    sql: str
    """The batch query."""
    partner: str
    """A column that is NULL exactly in the rows without a partner."""
    streamed: str = "SELECT * FROM result"
    """A query over the result folder that returns the rows to compare."""


#: The expected results by result folder.
BATCH = {
    "turnarounds": Batch(
        """SELECT f.flight_id, f.tailnum, f.origin, f.dest, f.ts, n.flight_id AS next_flight_id, n.dest AS next_dest,
                  n.ts AS next_ts
           FROM flights f JOIN flights n
           ON f.tailnum = n.tailnum AND n.ts > f.ts AND n.ts <= f.ts + INTERVAL 12 HOURS""",
        "next_flight_id",
    ),
    "flight_weather": Batch(
        f"""WITH {_LAST_REPORTS}
            SELECT flight_id, carrier, flight, origin, dest, ts, dep_delay, reported, temp, wind_speed, visib
            FROM flights LEFT JOIN reports USING (flight_id)""",
        "reported",
    ),
    "flight_weather_changes": Batch(
        f"WITH {_LAST_REPORTS} SELECT flight_id, reported, temp FROM flights LEFT JOIN reports USING (flight_id)",
        "reported",
        # The result of a changelog is the sum of its +1 and -1.
        """SELECT flight_id, reported, temp FROM (
             SELECT flight_id, reported, temp, sum(_tp_delta) AS weight FROM result GROUP BY ALL HAVING weight <> 0
           ), range(weight::BIGINT)""",
    ),
    "weather_at_departure": Batch(
        """SELECT f.flight_id, f.carrier, f.flight, f.origin, f.ts, f.dep_delay, w.ts AS reported, w.temp, w.wind_speed,
                  w.visib
           FROM flights f ASOF LEFT JOIN weather w ON f.origin = w.origin AND f.ts >= w.ts""",
        "reported",
    ),
    "next_flights": Batch(
        # Of flights of one aircraft at the same time, the last one in the files counts.  DuckDB would pick any.
        """WITH last AS (
             FROM flights QUALIFY row_number() OVER (PARTITION BY tailnum, ts ORDER BY place DESC) = 1
           ), next AS (
             SELECT f.flight_id, n.flight_id AS next_flight_id, n.dest AS next_dest, n.ts AS next_ts
             FROM flights f ASOF JOIN last n ON f.tailnum = n.tailnum AND f.ts < n.ts
             WHERE n.ts <= f.ts + INTERVAL 12 HOURS
           )
           SELECT f.flight_id, f.tailnum, f.origin, f.dest, f.ts, next_flight_id, next_dest, next_ts
           FROM flights f LEFT JOIN next USING (flight_id)""",
        "next_flight_id",
    ),
    "flight_planes": Batch(
        """SELECT f.flight_id, f.tailnum, f.ts, p.year AS built, p.manufacturer, p.model, p.seats
           FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum""",
        "manufacturer",
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a streaming result with the batch query; all fields but the name are counts of rows."""

    name: str
    rows: int
    padded: int
    missing: int
    unexpected: int

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same rows, each as often."""
        return self.missing == 0 and self.unexpected == 0


def compare(data: DemoData, results: Path) -> list[Comparison]:
    """Compare each result folder under ``results`` with its batch query, as multisets of rows."""
    found = []
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        flights = con.read_parquet(f"{data.flights}/*.parquet", filename=True, file_row_number=True)
        place = "* EXCLUDE (filename, file_row_number), row_number() OVER (ORDER BY filename, file_row_number) AS place"
        con.register("flights", flights.project(place).to_arrow_table())
        con.register("planes", con.read_parquet(f"{data.planes}/*.parquet").to_arrow_table())
        con.register("weather", con.read_json(f"{data.weather}/*.json", columns=_WEATHER_TYPES).to_arrow_table())
        for name, batch in BATCH.items():
            con.register("result", con.read_parquet(f"{results / name}/*.parquet").to_arrow_table())
            con.execute(f"CREATE OR REPLACE TEMP TABLE batch AS {batch.sql}")
            counts = con.execute(
                f"""WITH streamed AS ({batch.streamed}), differences AS (
                      SELECT * EXCLUDE (weight), sum(weight) AS weight
                      FROM (SELECT *, 1 AS weight FROM batch UNION ALL SELECT *, -1 FROM streamed) GROUP BY ALL
                    )
                    SELECT (SELECT count(*) FROM batch),
                           (SELECT count(*) FROM batch WHERE {batch.partner} IS NULL),
                           coalesce(sum(weight) FILTER (weight > 0), 0),
                           -coalesce(sum(weight) FILTER (weight < 0), 0)
                    FROM differences"""
            ).fetchall()
            found.append(Comparison(name, *(int(count) for count in counts[0])))
    return found


_WEATHER_TYPES = {"ts": "TIMESTAMPTZ", "origin": "VARCHAR", "temp": "DOUBLE", "wind_speed": "DOUBLE", "visib": "DOUBLE"}
