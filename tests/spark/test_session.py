"""Statements on a session: what is kept, what is refused, and in which words."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet
from tests.support.jobs import json_lines, json_rows, run_job, write_lines
from watersmeet.errors import (
    BindError,
    CatalogError,
    CheckpointError,
    ConfigError,
    PlanError,
    UnsupportedError,
    WatersmeetError,
)
from watersmeet.runtime import task_frames
from watersmeet.runtime.processor import OperatorProcessor
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch, Message, Started, Stream
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

CLICKS = """
CREATE STREAM clicks (id INT, ts BIGINT, page STRING, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM views (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""
JOIN = "SELECT c.id, c.ts, v.ts AS seen FROM clicks c JOIN views v ON c.id = v.id WITHIN INTERVAL '5' SECONDS"


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(CLICKS)
    return session


def folder_sink(session: Session, path: Path, name: str = "sink") -> Path:
    session.sql(f"CREATE STREAM {name} WITH (connector = 'files', path = '{path}', format = 'json')")
    return path


def side_rows(workspace: Path) -> list[dict[str, str]]:
    return [json.loads(line) for path in workspace.rglob("*.jsonl") for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_late_rows_go_whole_to_the_stream_named(session: Session, tmp_path: Path) -> None:
    out = folder_sink(session, tmp_path / "out")
    job = f"INSERT INTO sink {JOIN} SETTINGS late_rows = 'tardy'"
    session.sql("INSERT INTO clicks VALUES (1, 100, 'a'); INSERT INTO views VALUES (1, 101)")
    run_job(session, job, QueryMode.DRAIN)
    session.sql("INSERT INTO clicks VALUES (2, 3, 'late'), (3, 104, 'b'); INSERT INTO views VALUES (3, 104)")
    (query,) = run_job(session, job, QueryMode.DRAIN)
    assert query.report().late == {"c": 1, "v": 0}
    assert json_rows(out) == [(1, 100, 101), (3, 104, 104)]

    kept = folder_sink(session, tmp_path / "kept", "kept")
    run_job(session, "INSERT INTO kept SELECT source, raw, reason FROM tardy")
    ((source, raw, reason),) = json_rows(kept)
    assert (source, json.loads(str(raw))) == ("c", {"id": 2, "ts": 3, "page": "late"})
    assert reason == "its event time is before the frontier 100"

    with pytest.raises(ConfigError, match="that stream cannot store such rows"):
        run_job(session, f"INSERT INTO kept {JOIN} SETTINGS late_rows = 'views'")


def test_a_stream_named_for_side_rows_is_checked_before_the_query_runs(session: Session) -> None:
    for settings in ("late_rows = 'views'", "eviction = 'oldest', evicted_rows = 'views'"):
        with pytest.raises(ConfigError, match="= 'views': that stream cannot store such rows") as found:
            session.explain(f"{JOIN} SETTINGS {settings}")
        assert found.value.position is not None
    assert "kept in new" in session.explain(f"{JOIN} SETTINGS late_rows = 'new'")


def test_a_row_without_event_time_is_kept_whole(session: Session, tmp_path: Path) -> None:
    folder_sink(session, tmp_path / "out")
    session.sql("INSERT INTO clicks VALUES (1, NULL, 'a'), (2, 5, 'b')")
    (query,) = run_job(session, f"INSERT INTO sink {JOIN}")
    assert query.report().quarantined["c"] == 1
    (row,) = side_rows(session.workspace)
    assert row["reason"] == "the event time is NULL"
    assert json.loads(row["raw"]) == {"id": 1, "page": "a"}


def test_a_select_as_a_frame_keeps_bad_rows_in_the_workspace(session: Session, tmp_path: Path) -> None:
    session.sql("INSERT INTO clicks VALUES (1, NULL, 'a'), (2, 5, 'b'); INSERT INTO views VALUES (2, 6)")
    found = session.sql(JOIN)
    assert isinstance(found, Stream)
    query = (
        found.frame.writeStream.format("json")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    assert json_rows(tmp_path / "out") == [(2, 5, 6)]
    assert [row["reason"] for row in side_rows(session.workspace / "side")] == ["the event time is NULL"]


def test_queries_are_built_from_several_threads(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has workers of its own by an environment that all share: in a bounded run a query starts its last part
    from a thread, whenever it is that far."""
    both = threading.Barrier(2)

    def meet(operator: object) -> OperatorProcessor:
        with suppress(threading.BrokenBarrierError):
            both.wait(1.0)
        return OperatorProcessor(operator)  # type: ignore[arg-type]

    monkeypatch.setattr(task_frames, "OperatorProcessor", meet)
    before = dict(session.spark.sparkContext.environment)
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(session.sql, [JOIN, JOIN]))
    assert all(isinstance(result, Stream) for result in results)
    assert session.spark.sparkContext.environment == before


@pytest.mark.parametrize("setting", ["late_rows = 'tardy'", "idle_timeout = '5 s'", "trigger = '1 s'"])
def test_settings_of_a_run_do_not_fit_a_frame(session: Session, setting: str) -> None:
    with pytest.raises(ConfigError, match="becomes a DataFrame") as error:
        session.sql(f"{JOIN} SETTINGS {setting}")
    assert error.value.position is not None


@pytest.mark.slow
def test_a_derived_stream_in_files_has_the_delay_of_its_query(session: Session, tmp_path: Path) -> None:
    """Its results come up to a window out of order: read back, none of them may be late."""
    inner = folder_sink(session, tmp_path / "out")
    feed = f"CREATE STREAM seen WITH (connector = 'files', path = '{tmp_path / 'seen'}') AS {JOIN};"
    read = """INSERT INTO sink
        SELECT s.id, s.ts, c.page FROM seen s JOIN clicks c ON s.id = c.id WITHIN INTERVAL 9 SECONDS"""
    (tmp_path / "seen").mkdir()
    for clicks, views in (
        ("(1, 100, 'a'), (2, 104, 'b')", "(2, 101)"),
        ("(3, 109, 'c')", "(1, 102), (3, 108)"),
    ):
        session.sql(f"INSERT INTO clicks VALUES {clicks}; INSERT INTO views VALUES {views}")
        run_job(session, feed, QueryMode.DRAIN)
        (query,) = run_job(session, read, QueryMode.DRAIN)
        assert query.report().late["s"] == 0
    assert json_rows(inner) == [(1, 100, "a"), (2, 104, "b"), (3, 109, "c")]


def test_a_stream_in_use_is_not_dropped_and_a_dropped_one_is_gone(session: Session, tmp_path: Path) -> None:
    out = folder_sink(session, tmp_path / "out")
    session.sql("INSERT INTO clicks VALUES (1, 5, 'a')")
    started = session.sql(f"INSERT INTO sink {JOIN}")
    assert isinstance(started, Started)
    assert started.query.name == "into_sink_from_clicks_views"
    for name in ("clicks", "VIEWS", "sink"):
        with pytest.raises(CatalogError, match="used by a running query: into_sink_from_clicks_views"):
            session.sql(f"DROP STREAM {name}")
    session.sql("STOP QUERY into_sink_from_clicks_views")
    session.sql("DROP STREAM clicks")
    session.sql(CLICKS)
    session.sql("INSERT INTO views VALUES (1, 5)")
    run_job(session, f"INSERT INTO sink {JOIN.replace('c.ts', 'c.ts + 0 AS ts')}")
    assert json_rows(out) == [], "the dropped stream's rows came back"
    with pytest.raises(CatalogError, match="there is no table clicks"):
        session.sql("DROP TABLE clicks")


def test_a_new_derived_stream_refuses_the_checkpoint_of_a_dropped_one(session: Session, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    feed = f"CREATE STREAM seen AS {JOIN}"
    for result in session.run(feed, QueryMode.DRAIN, checkpoint):
        assert isinstance(result, Started)
        assert result.query.wait(120)
    session.sql("DROP STREAM seen")
    with pytest.raises(CheckpointError, match="belongs to an earlier stream seen"):
        list(session.run(feed, QueryMode.DRAIN, checkpoint))
    assert "seen" not in session.streams.by_name()


def test_if_not_exists_over_another_definition_leaves_it(session: Session) -> None:
    run_job(session, f"CREATE STREAM seen AS {JOIN}", QueryMode.DRAIN)
    other = JOIN.replace("c.id, ", "")
    found = session.sql(f"CREATE STREAM IF NOT EXISTS seen AS {other}")
    assert isinstance(found, Message)
    assert "another definition" in found.text
    with pytest.raises(CatalogError, match="another definition"):
        session.sql(f"CREATE STREAM seen AS {other}")


def test_a_query_that_does_not_start_leaves_no_stream(session: Session) -> None:
    with pytest.raises(BindError) as error:
        session.sql("CREATE STREAM seen AS SELECT uper(page) AS x, ts FROM clicks")
    assert "Spark has no function uper (line 1, column 30)\nhint: did you mean upper" in str(error.value)
    assert "seen" not in session.streams.by_name()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_groups_end_by_the_days_of_utc_alone(session: Session, zone: str) -> None:
    session.spark.conf.set("spark.sql.session.timeZone", zone)
    day = "date_trunc('DAY', timestamp_seconds(ts))"
    query = f"CREATE STREAM seen AS SELECT {day} AS day, count(*) AS n FROM clicks GROUP BY {day} EMIT FINAL"
    try:
        if zone == "UTC":
            session.sql("INSERT INTO clicks VALUES (1, 5, 'a'), (2, 86399, 'b'), (3, 86400, 'c')")
            run_job(session, query, QueryMode.DRAIN)
            rows = session.sql("SELECT day, n FROM table(seen)")
            assert isinstance(rows, Batch)
            assert [(row.day.day, row.n) for row in rows.frame.collect()] == [(1, 2)]
            return
        with pytest.raises(ConfigError) as error:
            run_job(session, query, QueryMode.DRAIN)
    finally:
        session.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert "end by the days and hours of UTC" in str(error.value)
    assert "timeZone is Europe/Berlin" in str(error.value)


def test_a_function_in_a_condition_that_spark_does_not_have(session: Session) -> None:
    with pytest.raises(BindError, match=r"no function no_such \(line 1, column \d+\)"):
        session.sql(f"{JOIN} WHERE no_such(c.page) > 3")


def test_explain_takes_one_query(session: Session) -> None:
    assert "join_1" in session.explain(JOIN)
    with pytest.raises(UnsupportedError, match="the text contains 2 statements"):
        session.explain(f"{JOIN}; {JOIN}")
    with pytest.raises(UnsupportedError, match="takes a query"):
        session.explain("SHOW STREAMS")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"time": "tss"}, BindError, "no such column"),
        ({"time": "page"}, BindError, "is STRING"),
        ({"time": "ts", "unit": "min"}, ConfigError, "event_time_unit = 'min' is not known"),
        ({"time": "ts", "delay": "soon"}, ConfigError, "is not a duration"),
        ({"time": "ts", "delay": "1 month"}, UnsupportedError, "no fixed length"),
    ],
)
def test_a_frame_that_cannot_be_registered(
    spark: SparkSession, session: Session, options: dict[str, str], error: type[WatersmeetError], message: str
) -> None:
    frame = spark.readStream.schema("id INT, ts BIGINT, page STRING").json(str(session.workspace))
    with pytest.raises(error, match=message):
        session.register("f", frame, **options)
    with pytest.raises(BindError, match="is not a valid stream name"):
        session.register("a b", frame, time="ts")


def test_nothing_is_written_to_a_frame(spark: SparkSession, session: Session) -> None:
    session.register("f", spark.readStream.schema("id INT, ts BIGINT").json(str(session.workspace)), time="ts")
    with pytest.raises(UnsupportedError, match="a registered DataFrame"):
        session.sql(f"INSERT INTO f {JOIN}")


def test_a_checkpoint_without_its_plan_is_refused(session: Session, tmp_path: Path) -> None:
    folder_sink(session, tmp_path / "out")
    session.sql("INSERT INTO clicks VALUES (1, 5, 'a')")
    (query,) = run_job(session, f"INSERT INTO sink {JOIN}", QueryMode.DRAIN)
    (Path(query.checkpoint) / "plan.json").unlink()
    with pytest.raises(CheckpointError, match=r"has progress but no plan\.json"):
        run_job(session, f"INSERT INTO sink {JOIN}", QueryMode.DRAIN)


def test_a_result_goes_on_into_another_query(session: Session, tmp_path: Path) -> None:
    """Each query has metrics of its own name: Spark refuses two of one name."""
    session.sql("INSERT INTO clicks VALUES (1, 100, 'a'); INSERT INTO views VALUES (1, 101)")
    first = session.sql(JOIN)
    assert isinstance(first, Stream)
    session.register("pairs", first.frame, time="ts", unit="s")
    out = folder_sink(session, tmp_path / "out")
    run_job(
        session, "INSERT INTO sink SELECT p.id, v.ts FROM pairs p JOIN views v ON p.id = v.id WITHIN INTERVAL 5 SECONDS"
    )
    assert json_rows(out) == [(1, 101)]


def test_a_batch_frame_is_no_stream(spark: SparkSession, session: Session) -> None:
    with pytest.raises(ConfigError, match="is not a streaming DataFrame"):
        session.register("f", spark.range(3))


def test_a_run_with_nothing_to_do_tells_what_was_done_before(session: Session, tmp_path: Path) -> None:
    folder_sink(session, tmp_path / "out")
    session.sql("INSERT INTO clicks VALUES (1, 100, 'a'); INSERT INTO views VALUES (2, 101)")
    (first,) = run_job(session, f"INSERT INTO sink {JOIN}", QueryMode.DRAIN)
    (second,) = run_job(session, f"INSERT INTO sink {JOIN}", QueryMode.DRAIN)
    assert first.report().rows_in == second.report().rows_in == {"c": 1, "v": 1}
    assert second.report().state_rows == 2
    assert second.report().batches == 0


def test_a_value_that_does_not_fit_is_told_without_a_stack(session: Session, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BindError, match="INSERT INTO clicks: ") as error:
        session.sql("INSERT INTO clicks VALUES ('xyz', 100, 'a')")
    assert "\n\tat " not in str(error.value) + capfd.readouterr().err


def test_a_limit_written_as_text_is_a_number(session: Session) -> None:
    unbounded = "SELECT c.id FROM clicks c JOIN views v ON c.id = v.id EMIT FINAL"
    assert "1,000" in session.explain(f"{unbounded} SETTINGS join_max_buffered_bytes = '1000'")
    with pytest.raises(ConfigError, match="join_max_buffered_bytes"):
        session.explain(f"{unbounded} SETTINGS join_max_buffered_bytes = 'much'")
    with pytest.raises(PlanError, match="cannot bound the state"):
        session.explain(unbounded)


def test_the_weight_is_a_column_of_results(session: Session, tmp_path: Path) -> None:
    out = f"connector = 'files', path = '{tmp_path / 'out'}', format = 'json', changelog = 'true'"
    session.sql(f"CREATE STREAM sink WITH ({out})")
    left = "SELECT c.id, v.ts AS seen FROM clicks c LEFT JOIN views v ON c.id = v.id WITHIN INTERVAL '5' SECONDS"
    session.sql("INSERT INTO clicks VALUES (1, 5, 'a')")
    job = f"INSERT INTO sink {left} WHERE _tp_delta < 0 EMIT CHANGELOG"
    run_job(session, job, QueryMode.DRAIN)
    session.sql("INSERT INTO views VALUES (1, 6)")
    run_job(session, job, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == [(1, None, -1)]
    with pytest.raises(BindError, match="_tp_delta belongs to the results"):
        session.explain("SELECT c.id FROM clicks c JOIN views v ON c.id = v.id AND v._tp_delta > 0")


def test_quarantined_json_keeps_its_text(session: Session, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.json", ["{not json", *json_lines([(7, 5)], ["id", "ts"])], age=1)
    session.sql(
        f"CREATE STREAM raw (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'files', "
        f"path = '{tmp_path / 'in'}', event_time_unit = 's')"
    )
    folder_sink(session, tmp_path / "out")
    run_job(session, "INSERT INTO sink SELECT id FROM raw")
    assert [row["raw"] for row in side_rows(session.workspace)] == ["{not json"]


def test_names_of_the_jvm_are_asked_for_once(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    assert jvm.functions is jvm.functions
    assert jvm.py4j.reflection.TypeUtil is jvm.py4j.reflection.TypeUtil
    assert spark.range(2).select(F.max("id")).collect()[0][0] == 1
