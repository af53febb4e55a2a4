"""The demo's streaming results equal those of batch queries in DuckDB over the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet
from watersmeet import QueryMode
from watersmeet.demo.batch import BATCH, compare
from watersmeet.demo.data import write_events
from watersmeet.demo.job import job_text
from watersmeet.session.results import Started

pytestmark = pytest.mark.spark

_FILES = 4  # two months; `watersmeet demo` compares the whole year


@pytest.mark.slow
def test_results_equal_the_batch_query(spark: SparkSession, tmp_path: Path) -> None:
    data = write_events(tmp_path / "events")
    for folder in (data.flights, data.weather):
        for path in sorted(folder.iterdir())[_FILES:]:
            path.unlink()
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    job = job_text(tmp_path).replace("max_files_per_trigger = '6'", "max_files_per_trigger = '2'")  # two batches
    queries = [result.query for result in session.run(job, QueryMode.BOUNDED) if isinstance(result, Started)]
    for query in queries:
        assert query.wait(240)
    comparisons = compare(data, tmp_path / "results")
    assert {each.name for each in comparisons} == set(BATCH)
    for each in comparisons:
        assert each.is_equal, each
        assert each.rows > 10_000
    padded = {each.name for each in comparisons if each.padded}
    assert padded >= {"flight_weather", "next_flights", "flight_planes"}
    for report in (query.report() for query in queries):
        assert not any(report.late.values())
        for alias, rows in report.rows_in.items():
            counts = (report.used, report.filtered, report.late, report.quarantined)
            assert rows == sum(count.get(alias, 0) for count in counts)

    change_a_row(tmp_path / "results")
    assert [(each.missing, each.unexpected) for each in compare(data, tmp_path / "results")] == [(1, 1)] * len(BATCH)


def change_a_row(results: Path) -> None:
    """Change the flight of one row of each result that has a partner, and so is never retracted."""
    for folder in results.iterdir():
        path = min(folder.glob("*.parquet"))
        rows = pq.read_table(path)
        flights = rows["flight_id"].to_numpy().copy()
        numbered = rows.append_column("place", pa.array(range(rows.num_rows)))
        flights[numbered.drop_null()["place"][0].as_py()] = -1
        column = rows.column_names.index("flight_id")
        pq.write_table(rows.set_column(column, "flight_id", pa.array(flights)), path)
