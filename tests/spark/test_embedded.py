"""Embedded streams: INSERT, and a query that feeds a stream which another query reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import json_rows, run_job
from watersmeet.errors import UnsupportedError
from watersmeet.runtime.query_mode import QueryMode

pytestmark = pytest.mark.spark

SCRIPT = """
CREATE STREAM clicks (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM views (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM sales (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM sink WITH (connector = 'files', path = '{0}/out', format = 'json');
INSERT INTO clicks VALUES (1, 10), (2, 12), (9, 100);
INSERT INTO views (ts, id) VALUES (8, 1), (5 + 6, 2), (CAST('100' AS INT), 9);
INSERT INTO sales VALUES (1, 14), (8, 100);
"""
FEED = """
CREATE STREAM seen AS
SELECT c.id, c.ts, v.ts AS viewed FROM clicks c JOIN views v ON c.id = v.id WITHIN INTERVAL '5' SECONDS
WHERE c.id < 9;
"""
READ = """
INSERT INTO sink SELECT s.id, s.viewed, x.ts FROM seen s LEFT JOIN sales x ON s.id = x.id WITHIN INTERVAL '5' SECONDS
EMIT FINAL;
"""


@pytest.mark.slow
def test_a_chain_of_queries_through_an_embedded_stream(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(SCRIPT.format(tmp_path))
    run_job(session, FEED, QueryMode.DRAIN)
    with pytest.raises(UnsupportedError, match="fed by its own query"):
        session.sql("INSERT INTO seen SELECT id, ts, ts FROM clicks")
    with pytest.raises(UnsupportedError, match="a query feeds it"):
        session.sql("INSERT INTO seen VALUES (1, 1, 1)")

    # The newest row of seen is of second 12, but it carries its query's frontier, 100 - 5: so sale 2, which would
    # have to come by second 17, will not come any more, and the row is padded without a word from seen.
    run_job(session, READ, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == [(1, 8, 14), (2, 11, None)]

    # Both go on where they were.
    session.sql("INSERT INTO clicks VALUES (3, 101)")
    session.sql("INSERT INTO views VALUES (3, 102)")
    session.sql("INSERT INTO sales VALUES (3, 103)")
    run_job(session, FEED + READ, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == [(1, 8, 14), (2, 11, None), (3, 102, 103)]


def test_insert_select_into_an_embedded_stream(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(SCRIPT.format(tmp_path))
    session.sql("CREATE STREAM kept (tag STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's')")
    run_job(session, "INSERT INTO kept (ts, tag) SELECT ts, concat('c', id) FROM clicks WHERE id <> 2")
    run_job(session, "INSERT INTO sink SELECT tag, ts FROM kept")
    assert json_rows(tmp_path / "out") == [("c1", 10), ("c9", 100)]


def test_what_writers_that_died_left_is_taken_away_after_a_day(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql("CREATE STREAM clicks (id INT)")
    log = tmp_path / "workspace" / "streams" / "clicks"
    for name, days in [("old", 2), ("new", 0)]:
        staging = log / f"_staging-{name}"
        staging.mkdir()
        (staging / "part-0.parquet").touch()
        os.utime(staging, (time.time() - days * 86400,) * 2)
    session.sql("INSERT INTO clicks VALUES (1)")
    assert sorted(path.name for path in log.glob("_staging-*")) == ["_staging-new"]
    assert len(list(log.glob("*.parquet"))) == 1
