"""The results of statements as notebooks show them, and batch results taken out of Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet
from watersmeet.errors import BindError, WatersmeetError
from watersmeet.html import MOST_ROWS
from watersmeet.session.results import Batch, Message, Plan, Started, Stream, Table
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark
JOIN = "SELECT a.id, b.ts FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '5' SECONDS"


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Session:
    session = watersmeet.connect(spark, workspace=tmp_path_factory.mktemp("notebooks") / "workspace")
    session.sql("""
        CREATE STREAM a (id INT, note STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts);
        CREATE STREAM b (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
        INSERT INTO a VALUES (1, '<b>', TIMESTAMP'2026-01-01 10:00:00'), (2, NULL, TIMESTAMP'2026-01-01 10:00:01');
    """)
    return session


def test_messages_and_tables(session: Session) -> None:
    shown = session.sql("SHOW STREAMS")
    assert isinstance(shown, Table)
    assert "<td>a</td>" in shown._repr_html_()
    created = session.sql("CREATE STREAM IF NOT EXISTS a (id INT)")
    assert isinstance(created, Message)
    assert "<p>" in created._repr_html_()


def test_a_plan_is_a_picture_and_a_text(session: Session) -> None:
    plan = session.sql(f"EXPLAIN {JOIN}")
    assert isinstance(plan, Plan)
    html = plan._repr_html_()
    assert plan.picture() in html
    assert plan.picture().count("<rect") == 3
    assert '<text class="name" x="14" y="24">join_1</text>' in html
    assert "inner" in plan.picture()  # what the operator is, as EXPLAIN says it
    assert "source b (b, embedded)" in html
    assert session.explain(JOIN) == plan.text


def test_the_plan_of_a_statement_set_is_a_picture_too_and_that_of_stored_rows_is_text(session: Session) -> None:
    session.sql("CREATE STREAM IF NOT EXISTS one WITH (connector = 'files', path = 'nowhere', format = 'json')")
    both = f"EXPLAIN EXECUTE STATEMENT SET BEGIN INSERT INTO one {JOIN}; INSERT INTO one {JOIN} WHERE a.id > 1; END;"
    shared = session.sql(both)
    assert isinstance(shared, Plan)
    assert shared.picture().count("<rect") == 3
    stored = session.sql("EXPLAIN SELECT * FROM table(a)")
    assert isinstance(stored, Plan)
    assert stored.picture() == ""
    assert "<svg" not in stored._repr_html_()
    assert "<pre>" in stored._repr_html_()


def test_a_stream_shows_its_columns(session: Session) -> None:
    stream = session.sql(JOIN)
    assert isinstance(stream, Stream)
    assert "<td>id</td><td>int</td>" in stream._repr_html_()


def test_batch_rows_are_shown_escaped_and_taken_out(session: Session) -> None:
    batch = session.sql("SELECT id, note, ts FROM table(a) ORDER BY id")
    assert isinstance(batch, Batch)
    html = batch._repr_html_()
    assert '<td class="number">1</td><td>&lt;b&gt;</td>' in html
    assert '<td class="null">NULL</td>' in html
    arrow = batch.to_arrow()
    assert isinstance(arrow, pa.Table)
    assert arrow["note"].to_pylist() == ["<b>", None]
    assert batch.to_pandas()["id"].tolist() == batch.to_polars()["id"].to_list() == [1, 2]
    assert batch.to_polars()["ts"].to_list() == arrow["ts"].to_pylist() == list(batch.to_pandas()["ts"])


def test_of_many_rows_the_first_are_shown_in_their_order(session: Session) -> None:
    batch = session.sql(
        "SELECT a.id * 1000 - n AS v FROM table(a) AS a, LATERAL explode(sequence(1, 100)) AS x(n) ORDER BY 1"
    )
    assert isinstance(batch, Batch)
    html = batch._repr_html_()
    assert ">900<" in html
    assert f">{899 + MOST_ROWS}<" in html
    assert f">{900 + MOST_ROWS}<" not in html
    assert f"the first {MOST_ROWS} rows; there are more" in html


def test_a_batch_is_drawn_in_the_session_s_zone(session: Session) -> None:
    batch = session.sql("SELECT id, id * 1.5 AS v, ts FROM table(a)")
    assert isinstance(batch, Batch)
    assert "ts (2026-01-01)" in batch.chart(x="ts", y=["id", "v"]).svg
    assert "2026-01-01 10:00:01: v 3" in batch.chart(x="ts", y="v").svg
    with pytest.raises(BindError, match="there is no column vv"):
        batch.chart(x="ts", y="vv")
    broken = session.sql("SELECT raise_error('<broken>') AS v, id FROM table(a)")
    assert isinstance(broken, Batch)
    with pytest.raises(WatersmeetError, match="broken"):
        broken.chart(x="id", y="v")


def test_a_batch_that_fails_shows_why_without_a_trace(session: Session) -> None:
    batch = session.sql("SELECT raise_error('<broken>') FROM table(a)")
    assert isinstance(batch, Batch)
    html = batch._repr_html_()
    assert 'class="error"' in html
    assert "&lt;broken&gt;" in html
    assert "Traceback" not in html
    assert "at org." not in html
    with pytest.raises(WatersmeetError, match="broken"):
        batch.to_arrow()


def test_a_started_query_shows_what_it_does(session: Session, tmp_path: Path) -> None:
    session.sql(f"CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path}/sink', format = 'json')")
    started = session.sql(f"INSERT INTO sink {JOIN}")
    assert isinstance(started, Started)
    assert '<span class="pill running">running</span>' in started._repr_html_()
    started.query.stop()
    assert '<span class="pill stopped">stopped</span>' in started.query._repr_html_()
    assert "into sink" in started._repr_html_()
