"""Embedded streams whose files have changed on disk: no query gives other rows than were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS
from watersmeet.errors import WatersmeetError
from watersmeet.session.results import Batch, Started

pytestmark = pytest.mark.spark
STORED = "SELECT name FROM table(o)"


def test_a_page_that_has_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path)
    session.sql("CREATE STREAM o (name STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    session.sql("INSERT INTO o VALUES ('abcdefgh', TIMESTAMP'2026-01-01 10:00:00')")
    (segment,) = (tmp_path / "streams" / "o").glob("*.parquet")
    before = session.sql(STORED)
    assert isinstance(before, Batch)
    assert [row.name for row in before.frame.collect()] == ["abcdefgh"]
    content = segment.read_bytes()
    at = content.index(b"abcdefgh")  # the first is in a page, later ones are statistics
    segment.write_bytes(content[:at] + b"abcdefgx" + content[at + 8 :])
    query = session.sql("CREATE STREAM copied AS SELECT name FROM o")
    assert isinstance(query, Started)
    with pytest.raises(WatersmeetError, match="CRC checksum verification failed"):
        query.query.wait(PATIENCE_SECONDS)
    changed = session.sql(STORED)
    assert isinstance(changed, Batch)
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE"):
        changed.frame.collect()
