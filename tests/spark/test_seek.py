"""SETTINGS seek_to: from where streams are read when a query first starts, and again when it goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet
from tests.support.jobs import json_lines, json_rows, run_job, write_lines
from watersmeet.connectors.embedded.connector import EmbeddedLog
from watersmeet.errors import ConfigError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Stream
from watersmeet.session.session import Session
from watersmeet.settings.seek import Seek, resolve

pytestmark = pytest.mark.spark

CLICKS = """
CREATE STREAM clicks (id INT, sec BIGINT, WATERMARK FOR sec AS sec) WITH (event_time_unit = 's');
CREATE STREAM sink WITH (connector = 'files', path = '{0}', format = 'json');
"""


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    (tmp_path / "out").mkdir()
    session.sql(CLICKS.format(tmp_path / "out"))
    return session


def after_a_moment(session: Session, sql: str) -> None:
    """Insert rows that have arrived later than anything that was done before."""
    time.sleep(0.05)
    session.sql(sql)


def drained(frame: DataFrame, folder: Path) -> tuple[list[tuple[object, ...]], int]:
    """All rows of a stream, and how many sources Spark has read for it."""
    writer = frame.writeStream.format("json").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "rows"))
    assert query.awaitTermination(120)
    progress = query.lastProgress
    assert progress is not None
    return json_rows(folder / "rows"), len(progress["sources"])


def test_the_latest_is_a_moment_that_stays_when_the_query_goes_on(session: Session, tmp_path: Path) -> None:
    session.sql("INSERT INTO clicks VALUES (1, 10)")
    job = "INSERT INTO sink SELECT id, sec FROM clicks SETTINGS seek_to = 'latest'"
    time.sleep(0.05)
    (query,) = run_job(session, job, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == []
    assert query.report().rows_in.get("clicks", 0) == 0
    kept = json.loads((Path(query.checkpoint) / "plan.json").read_text())["seek"]
    assert kept["to"] == "latest"
    assert abs(kept["since"] / 1e6 - time.time()) < 300
    session.sql("INSERT INTO clicks VALUES (2, 20)")
    for _ in range(2):  # each time nothing twice
        (query,) = run_job(session, job, QueryMode.DRAIN)
        assert json_rows(tmp_path / "out") == [(2, 20)]
    assert query.report().rows_in == {"clicks": 1}
    assert json.loads((Path(query.checkpoint) / "plan.json").read_text())["seek"] == kept


@pytest.mark.slow
def test_files_since_a_time(session: Session, tmp_path: Path) -> None:
    """The files were changed 22:13:20 and later, on the 14th of November 2023."""
    for age in (0, 60, 61):
        lines = json_lines([(age, age)], ["id", "sec"])
        write_lines(tmp_path / "in" / f"{age}.json", lines, age=age)
    session.sql(
        "CREATE STREAM f (id INT, sec BIGINT, WATERMARK FOR sec AS sec) "
        f"WITH (connector = 'files', path = '{tmp_path / 'in'}', event_time_unit = 's')"
    )
    run_job(session, "INSERT INTO sink SELECT id, sec FROM f SETTINGS seek_to = '2023-11-14T23:14:20+01:00'")
    assert json_rows(tmp_path / "out") == [(60, 60), (61, 61)]


def test_a_time_without_a_zone_is_the_session_s(spark: SparkSession) -> None:
    midnight = 1_767_225_600_000_000  # 2026-01-01 in UTC
    assert resolve(spark, None) is None
    assert resolve(spark, "earliest") == Seek(to="earliest")
    assert resolve(spark, "2026-01-01T00:00:00.000001Z") == Seek(to="time", since=midnight + 1)
    assert resolve(spark, "2026-01-01") == Seek(to="time", since=midnight)
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert resolve(spark, "2026-01-01") == Seek(to="time", since=midnight - 9 * 3_600_000_000)
        assert resolve(spark, "2026-01-01 00:00Z") == Seek(to="time", since=midnight)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.slow
def test_a_dataframe_begins_where_it_was_made(session: Session, tmp_path: Path) -> None:
    """And both sides of a join of a stream with itself begin at one place: Spark reads one source for them."""
    session.sql("INSERT INTO clicks VALUES (1, 10)")
    time.sleep(0.05)
    made = session.sql("""
        SELECT a.id, b.id AS other FROM clicks a JOIN clicks b ON a.sec = b.sec WITHIN INTERVAL '5' SECONDS
        SETTINGS seek_to = 'latest'
    """)
    assert isinstance(made, Stream)
    after_a_moment(session, "INSERT INTO clicks VALUES (2, 10), (3, 10)")
    assert drained(made.frame, tmp_path / "made") == ([(2, 2), (2, 3), (3, 2), (3, 3)], 1)


@pytest.mark.slow
def test_frontiers_hold_for_what_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    rows = spark.createDataFrame([(1, None), (None, 70)], "id INT, _frontier BIGINT")
    log.append_frame(rows, "first")
    time.sleep(0.05)
    seek = resolve(spark, "latest")
    time.sleep(0.05)
    log.append_frame(rows.selectExpr("id + 1 AS id", "_frontier"), "second")
    read = log.read_stream(spark, rows.select("id").schema, seek).select("id", "_frontier")
    found, _ = drained(read, tmp_path)
    # in JSON a NULL is left out: each row has one value, its id or its frontier
    assert found == [(2,), (70,), (70,)]


@pytest.mark.parametrize(
    ("stream", "what"),
    [("f", "a DataFrame that was registered"), ("made_up", "a stream of datagen")],
    ids=["registered", "datagen"],
)
def test_streams_that_do_not_tell_when_rows_arrived(
    spark: SparkSession, session: Session, stream: str, what: str
) -> None:
    session.register("f", spark.readStream.format("rate").load(), time="timestamp")
    session.sql("CREATE STREAM made_up (n INT) WITH (connector = 'datagen')")
    query = f"SELECT * FROM {stream}\nSETTINGS seek_to ="
    for begin in ("EXPLAIN", "INSERT INTO sink"):
        with pytest.raises(ConfigError) as raised:
            session.sql(f"{begin} {query} 'latest'")
        assert str(raised.value) == (
            f"seek_to = 'latest': {stream} is {what}, so when its rows arrived is not known "
            "(line 2, column 10)\nhint: leave seek_to out, or test the event time in WHERE"
        )
    session.explain(f"{query} 'earliest'")


def test_explain_says_where_streams_begin(session: Session) -> None:
    asked = "SELECT id FROM clicks"
    line = "streams are read from latest on, by arrival; fixed when the checkpoint is made"
    assert line in session.explain(f"{asked} SETTINGS seek_to = 'latest'").splitlines()
    assert "by arrival" not in session.explain(asked)
    with pytest.raises(ConfigError, match=r"seek_to = 'soon': .*\(line 1, column 32\)"):
        session.explain(f"{asked} SETTINGS seek_to = 'soon'")
