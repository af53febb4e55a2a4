"""Delta tables as streams of queries on Spark: read by the workers or by way of Spark, over restarts."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from pyspark.sql import SparkSession

import watersmeet
from tests.support.delta_tables import append, make
from tests.support.jobs import json_rows, run_job
from watersmeet.errors import ConfigError, ConnectorError, UnsupportedError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch, Stream
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("part", pa.string()), ("ts", INSTANT)])
COLUMNS = "id BIGINT, v STRING, part STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS"
SINK = "CREATE STREAM sink WITH (connector = 'files', path = '{0}/out', format = 'json', changelog = 'true')"


def at(second: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + second, UTC)


def row(id: int | None, v: str | None, part: str | None, second: int | None) -> dict[str, Any]:
    return {"id": id, "v": v, "part": part, "ts": None if second is None else at(second)}


def session_of(spark: SparkSession, folder: Path, options: str = "") -> Session:
    session = watersmeet.connect(spark, workspace=folder / "workspace")
    session.sql(f"CREATE STREAM a ({COLUMNS}) WITH (connector = 'delta', path = '{folder}/t'{options})")
    session.sql(SINK.format(folder))
    return session


def total(folder: Path) -> Counter[tuple[object, ...]]:
    """What a changelog in files adds up to."""
    found: Counter[tuple[object, ...]] = Counter()
    for *values, delta in json_rows(folder):
        found[tuple(values)] += int(str(delta))
    return Counter({values: count for values, count in found.items() if count})


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that workers have read."""
    from watersmeet.runtime import worker_scan

    seen: list[str] = []

    def spy(found: Any, projection: Any, packer: Any) -> Any:
        seen.append(packer.spec.source)
        return real(found, projection, packer)

    real = worker_scan.scanned
    monkeypatch.setattr("watersmeet.runtime.source_frames.scanned", spy)
    return seen


@pytest.mark.sample(2)
@pytest.mark.parametrize(("where", "by_workers"), [("v = 'a'", True), ("length(v) = 1 AND v = 'a'", False)])
def test_rows_are_read_once_over_restarts(
    spark: SparkSession, tmp_path: Path, scans: list[str], where: str, by_workers: bool
) -> None:
    table = tmp_path / "t"
    make(table, SCHEMA, by=["part"])
    append(table, [row(1, "a", "x", 1), row(2, None, "y", 2), row(9, "late", None, None)], SCHEMA)
    session = session_of(spark, tmp_path, ", max_files_per_trigger = 1")
    insert = f"INSERT INTO sink SELECT id, v, part FROM a WHERE {where} OR id > 1"
    (query,) = run_job(session, insert, QueryMode.DRAIN)
    assert query.report().batches == 3
    append(table, [row(3, "c", "x", 3)], SCHEMA)
    Table(table).optimize.compact()
    append(table, [row(4, "d", "x", 4), row(5, "e", "y", 4)], SCHEMA)
    (query,) = run_job(watersmeet.connect(spark, workspace=tmp_path / "workspace"), insert, QueryMode.DRAIN)
    assert (scans != []) == by_workers
    assert json_rows(tmp_path / "out") == sorted(
        [(1, "a", "x"), (2, None, "y"), (3, "c", "x"), (4, "d", "x"), (5, "e", "y")], key=repr
    )
    assert query.report().rows_in == {"a": 6}
    assert query.report().quarantined == {"a": 1}
    (aside,) = "".join(path.read_text() for path in Path(query.checkpoint, "side").glob("*.jsonl")).splitlines()
    assert json.loads(json.loads(aside)["raw"]) == {"id": 9, "v": "late"}


CHANGING = "id BIGINT, v STRING, part STRING, ts TIMESTAMP"


def merge(table: Path, *rows: dict[str, Any]) -> None:
    source = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    merging = Table(table).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def change(table: Path, number: int) -> None:
    """Updates, deletes, inserts and compaction, with rows that move to another partition."""
    merge(table, row(1, f"merged {number}", "y", 10 + number), row(20 + number, "new", "x", 10 + number))
    Table(table).update(updates={"part": "'z'", "v": "concat(v, '+')"}, predicate=f"id = {2 + number}")
    Table(table).delete(f"id = {5 + number}")
    Table(table).optimize.compact()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mode", "select"),
    [
        ("changelog_kv", "id, v, part"),
        ("versioned_kv", "id, v, part"),
        ("changelog_kv", "id, concat(v, '') AS v, part"),
    ],
)
def test_a_changelog_adds_up_to_the_table(spark: SparkSession, tmp_path: Path, mode: str, select: str) -> None:
    table = tmp_path / "t"
    make(table, SCHEMA, feed=True, by=["part"])
    append(table, [row(number, f"v{number}", "xy"[number % 2], number) for number in range(10)], SCHEMA)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(
        f"CREATE STREAM c ({CHANGING}) PRIMARY KEY (id) WITH (connector = 'delta', path = '{table}', "
        f"max_files_per_trigger = 1) SETTINGS mode = '{mode}'"
    )
    session.sql(SINK.format(tmp_path))
    insert = f"INSERT INTO sink SELECT {select} FROM c"
    for number in range(2):
        run_job(session, insert, QueryMode.DRAIN)
        change(table, number)
    (query,) = run_job(session, insert, QueryMode.DRAIN)
    held = Table(table).to_pyarrow_table(columns=["id", "v", "part"]).to_pylist()
    assert total(tmp_path / "out") == Counter(tuple(each.values()) for each in held)
    assert not query.report().quarantined
    assert query.report().totals()["late"] == 0


@pytest.mark.slow
def test_rows_that_are_stored(spark: SparkSession, tmp_path: Path) -> None:
    """Of a changing stream too, which does not need the feed for them."""
    table = tmp_path / "t"
    make(table, SCHEMA, by=["part"])
    append(table, [row(1, "a", "x", 1), row(2, "b", None, 2)], SCHEMA)
    session = session_of(spark, tmp_path)
    session.sql(f"CREATE MUTABLE STREAM c ({CHANGING}) PRIMARY KEY (id) WITH (connector = 'delta', path = '{table}')")
    Table(table).update(updates={"v": "'z'"}, predicate="id = 2")
    for name in "a", "c":
        result = session.sql(f"SELECT id, v, part, ts FROM table({name}) ORDER BY id")
        assert isinstance(result, Batch)
        rows = [tuple(each.values()) for each in result.to_arrow().to_pylist()]
        assert rows == [(1, "a", "x", at(1)), (2, "z", None, at(2))]


@pytest.mark.slow
def test_where_a_query_begins(spark: SparkSession, tmp_path: Path) -> None:
    """By an option or by seek_to, which goes before it; a query that is started again goes on."""
    table = tmp_path / "t"
    for number in range(4):
        append(table, [row(number, "a", "x", number)], SCHEMA)
        time.sleep(0.02)
    commits = [json.loads(line) for line in (table / "_delta_log" / f"{2:020d}.json").read_text().splitlines()]
    (moment,) = [each["commitInfo"]["timestamp"] for each in commits if "commitInfo" in each]
    third = datetime.fromtimestamp(moment / 1000, UTC).isoformat()
    cases = [
        ("", "", [0, 1, 2, 3]),
        (", starting = 'latest'", "", []),
        (", starting_version = 1", "", [1, 2, 3]),
        (f", starting_timestamp = '{third}'", "", [2, 3]),
        (", starting_version = 4", "", []),
        (", starting = 'latest'", "SETTINGS seek_to = 'earliest'", [0, 1, 2, 3]),
        (", starting_version = 1", f"SETTINGS seek_to = '{third}'", [2, 3]),
        ("", "SETTINGS seek_to = 'latest'", []),
    ]
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    for place, (options, _, _) in enumerate(cases):
        session.sql(f"CREATE STREAM s{place} ({COLUMNS}) WITH (connector = 'delta', path = '{table}'{options})")
        session.sql(f"CREATE STREAM o{place} WITH (connector = 'files', path = '{tmp_path}/{place}')")

    def run() -> None:
        for place, (_, settings, _) in enumerate(cases):
            run_job(session, f"INSERT INTO o{place} SELECT id FROM s{place} {settings}", QueryMode.DRAIN)

    run()
    for place, (_, _, ids) in enumerate(cases):
        assert json_rows(tmp_path / str(place)) == [(id,) for id in ids], cases[place]
    append(table, [row(9, "b", "x", 9)], SCHEMA)
    run()
    for place, (_, _, ids) in enumerate(cases):
        assert json_rows(tmp_path / str(place)) == [(id,) for id in [*ids, 9]], cases[place]


@pytest.mark.slow
def test_versions_that_are_left_out_are_counted_and_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "t"
    append(table, [row(1, "a", "x", 1)], SCHEMA)
    session = session_of(spark, tmp_path, ", skip_change_commits = 'true'")
    run_job(session, "INSERT INTO sink SELECT id, v FROM a", QueryMode.DRAIN)
    Table(table).delete("id = 1")
    append(table, [row(2, "b", "x", 2)], SCHEMA)
    with caplog.at_level(logging.WARNING, "watersmeet"):
        (query,) = run_job(session, "INSERT INTO sink SELECT id, v FROM a", QueryMode.DRAIN)
    assert query.report().counters["a.skipped_versions"] == 1
    assert "the Delta table of a that remove or change rows were left out (1 so far)" in caplog.text
    assert json_rows(tmp_path / "out") == [(1, "a"), (2, "b")]


@pytest.mark.slow
def test_a_version_that_changes_rows_stops_the_query_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [row(1, "a", "x", 1)], SCHEMA)
    session = session_of(spark, tmp_path)
    run_job(session, "INSERT INTO sink SELECT id, v FROM a", QueryMode.DRAIN)
    Table(table).update(updates={"v": "'z'"})
    with pytest.raises(ConnectorError) as raised:
        run_job(session, "INSERT INTO sink SELECT id, v FROM a", QueryMode.DRAIN)
    assert raised.value.message == (
        f"a only appends, but version 1 removed or changed rows (UPDATE) in the Delta table {table}"
    )
    assert "skip_change_commits" in str(raised.value.hint)


@pytest.mark.slow
def test_a_table_that_was_made_anew_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [row(1, "a", "x", 1)], SCHEMA)
    session = session_of(spark, tmp_path)
    run_job(session, "INSERT INTO sink SELECT id, v FROM a", QueryMode.DRAIN)
    shutil.rmtree(table)
    for number in range(3):
        append(table, [row(number, "a", "x", 1)], SCHEMA)
    with pytest.raises(ConnectorError, match="is not the one that the query has read"):
        run_job(session, "INSERT INTO sink SELECT id, v FROM a", QueryMode.DRAIN)


@pytest.mark.slow
def test_what_does_not_fit_is_refused_before_a_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(SINK.format(tmp_path))

    def refused(columns: str, options: str = "", kind: str = "STREAM") -> str:
        declared = f"({columns})" if columns else ""
        session.sql(f"CREATE {kind} s {declared} WITH (connector = 'delta', path = '{tmp_path}/t'{options})")
        try:
            with pytest.raises((ConnectorError, ConfigError, UnsupportedError)) as raised:
                run_job(session, "INSERT INTO sink SELECT 1 AS id FROM s")
        finally:
            session.sql("DROP STREAM s")
        assert raised.value.hint
        return raised.value.message

    assert refused("id BIGINT") == f"there is no folder {tmp_path}/t"
    (tmp_path / "t").mkdir()
    assert refused("id BIGINT") == f"{tmp_path}/t is no Delta table"
    append(tmp_path / "t", [row(1, "a", "x", 1)], SCHEMA)
    assert refused("") == "s declares no columns, so its rows cannot be read"
    assert "has no column idd at version 0: s declares one" in refused("id BIGINT, idd INT")
    assert "column v of the Delta table" in refused("id BIGINT, v INT")
    assert "has no version 7: its newest is 0" in refused("id BIGINT", ", starting_version = 7")
    assert "has no change data feed at version 0, which s needs" in refused(
        "id BIGINT, PRIMARY KEY (id)", kind="MUTABLE STREAM"
    )
    assert "declares _tp_time" in refused("id BIGINT, _tp_time TIMESTAMP")


@pytest.mark.slow
def test_real_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t", [row(1, "a", "x", 1)], SCHEMA)
    session = session_of(spark, tmp_path)
    with pytest.raises(UnsupportedError, match="real time") as raised:
        list(session.run("INSERT INTO sink SELECT id FROM a", real_time=True))
    assert raised.value.hint


@pytest.mark.slow
def test_a_dataframe_reads_a_table_with_a_checkpoint_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [row(1, "a", "x", 1)], SCHEMA)
    session_of(spark, tmp_path)
    for expected in ([(1,)], [(1,), (2,)]):
        session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
        found = session.sql("SELECT a.id FROM a")
        assert isinstance(found, Stream)
        writer = found.frame.writeStream.format("json").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "own")).start(str(tmp_path / "rows"))
        assert query.awaitTermination(120)
        assert json_rows(tmp_path / "rows") == expected
        append(table, [row(2, "b", "x", 2)], SCHEMA)
