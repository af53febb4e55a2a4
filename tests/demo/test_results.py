"""The demo's streaming results are those of DuckDB over the same rows as one batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from watersmeet import QueryMode
from watersmeet.demo.batch import BATCH, compare
from watersmeet.demo.data import write_events
from watersmeet.demo.job import job_text
from watersmeet.results import Started

pytestmark = pytest.mark.spark


def test_results_equal_the_batch_answer(spark: SparkSession, tmp_path: Path) -> None:
    data = write_events(tmp_path / "events", files=8)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    reports = []
    for result in session.run(job_text(tmp_path), QueryMode.BOUNDED):
        if isinstance(result, Started):
            assert result.query.wait(240)
            reports.append(result.query.report())
    comparisons = compare(data, tmp_path / "results")
    assert {each.name for each in comparisons} == set(BATCH)
    for each in comparisons:
        assert each.is_equal, each
        assert each.rows > 100_000
    for report in reports:
        assert not any(report.late.values())
        for alias, rows in report.rows_in.items():
            counts = (report.used, report.filtered, report.late, report.quarantined)
            assert rows == sum(count.get(alias, 0) for count in counts)
