"""Streams of Parquet files that workers read themselves: the same as when Spark reads them, also in one checkpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet
from tests.support.jobs import json_rows, run_job
from watersmeet.connectors.files import connector as files
from watersmeet.errors import ConnectorError
from watersmeet.runtime import dataflow, worker_scan
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.report import Report
from watersmeet.session.results import Stream
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

O_SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("Code", pa.string()),
        ("price", pa.float64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("extra", pa.string()),
    ]
)
P_SCHEMA = pa.schema([("id", pa.int64()), ("code", pa.string()), ("paid", pa.decimal128(9, 2)), ("ts", pa.int64())])
STREAMS = """
CREATE STREAM o (id INT, code STRING, price DOUBLE, ts TIMESTAMP, extra STRING, day DATE,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS) WITH (connector = 'files', path = '{0}/in o', format = 'parquet');
CREATE MUTABLE STREAM p (id BIGINT, code STRING, paid DECIMAL(9, 2), ts BIGINT,
  PRIMARY KEY (id), WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)
  WITH (connector = 'files', path = '{0}/p', format = 'parquet', event_time_unit = 's');
CREATE STREAM sink WITH (connector = 'files', path = '{0}/out', format = 'json', changelog = 'true');
"""
#: Keys of two types and two columns, a filter, a computed column, a column from the folders' names.
QUERY = """INSERT INTO sink SELECT o.id, o.code, o.price * 2 AS twice, o.day, p.paid
FROM o LEFT JOIN p ON o.id = p.id AND o.code = p.code WHERE o.price > 1 AND o.code LIKE 'c%' EMIT CHANGELOG;"""


def o_row(id: int | None, code: str | None, price: float | None, second: int | None) -> dict[str, Any]:
    ts = None if second is None else datetime.fromtimestamp(1_700_000_000 + second, UTC)
    return {"id": id, "Code": code, "price": price, "ts": ts, "extra": "more"}


def p_row(id: int | None, code: str, paid: int, second: int) -> dict[str, Any]:
    return {"id": id, "code": code, "paid": paid, "ts": 1_700_000_000 + second}


def write(path: Path, schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), hidden)
    hidden.rename(path)


def write_first(folder: Path) -> None:
    o = [o_row(1, "c1", 2.5, 1), o_row(2, "c2", 9.0, 2), o_row(3, "x", 9.0, 3), o_row(2, "c2", 0.5, 4)]
    write(folder / "in o" / "day=2026-11-21" / "a b.parquet", O_SCHEMA, [*o, o_row(7, "c7", 1.5, None)])
    write(folder / "p" / "1.parquet", P_SCHEMA, [p_row(1, "c1", 10, 1), p_row(2, "c2", 20, 2), p_row(None, "c", 1, 3)])


def write_second(folder: Path) -> None:
    o = [o_row(None, "c1", 3.0, 5), o_row(2, "c2", 4.0, 6), o_row(1, None, 4.0, 6), o_row(4, "c4", 8.0, 7)]
    write(folder / "in o" / "day=2026-11-22" / "c.parquet", O_SCHEMA, o)
    # of one key and time the row that stands later in the file counts
    p = [p_row(4, "c4", 40, 5), p_row(4, "c4", 41, 5), p_row(1, "c1", 11, 6), p_row(2, "c9", 20, 7)]
    write(folder / "p" / "2.parquet", P_SCHEMA, p)


def drain(session: Session) -> tuple[Report, list[dict[str, Any]]]:
    (query,) = run_job(session, QUERY, QueryMode.DRAIN)
    texts = [line for path in Path(query.checkpoint, "side").glob("*.jsonl") for line in path.read_text().splitlines()]
    aside = [json.loads(text) for text in texts]
    return query.report(), sorted(({**row, "raw": json.loads(row["raw"])} for row in aside), key=repr)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that workers have read."""
    seen: list[str] = []

    def spy(found: Any, projection: Any, packer: Any) -> Any:
        seen.append(packer.spec.source)
        return real(found, projection, packer)

    real = worker_scan.scanned
    monkeypatch.setattr("watersmeet.runtime.source_frames.scanned", spy)
    return seen


def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "parquet_files", lambda *given, **options: None)


@pytest.mark.parametrize(
    ("first", "then"), [("workers", "spark"), pytest.param("spark", "workers", marks=pytest.mark.slow)]
)
def test_both_ways_give_the_same(
    spark: SparkSession, tmp_path: Path, scans: list[str], first: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes up the other's checkpoint: rows are in the buckets where the other would have put them."""
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(STREAMS.format(tmp_path))

    def step(way: str) -> tuple[Report, list[dict[str, Any]]]:
        with monkeypatch.context() as patch:
            if way == "spark":
                by_spark(patch)
            return drain(session)

    write_first(tmp_path)
    step(first)
    write_second(tmp_path)
    report, aside = step(then)
    assert sorted(scans) == sorted(["o", "p"] * [first, then].count("workers"))
    rows: dict[tuple[Any, ...], int] = {}
    for *row, delta in json_rows(tmp_path / "out"):
        rows[tuple(row)] = rows.get(tuple(row), 0) + int(str(delta))
    assert {row for row, weight in rows.items() if weight} == {
        (1, "c1", 5.0, "2026-11-21", 11.0),
        (2, "c2", 18.0, "2026-11-21", None),
        (2, "c2", 8.0, "2026-11-22", None),
        (4, "c4", 16.0, "2026-11-22", 41.0),
        (None, "c1", 6.0, "2026-11-22", None),
    }
    assert set(rows.values()) == {0, 1}
    assert report.rows_in == {"o": 9, "p": 7}
    assert report.filtered == {"o": 3}
    assert report.quarantined == {"o": 1, "p": 1}
    aside[1]["raw"]["paid"] = float(aside[1]["raw"]["paid"])  # a number as Spark writes it, a text of a worker
    assert aside == [
        {
            "kind": "quarantined",
            "source": "o",
            "reason": "the event time is NULL",
            "raw": {"id": 7, "code": "c7", "price": 1.5, "extra": "more", "day": "2026-11-21"},
        },
        {
            "kind": "quarantined",
            "source": "p",
            "reason": "primary key column id is NULL",
            "raw": {"code": "c", "paid": 1.0, "ts": 1_700_000_003},
        },
    ]


def test_both_ways_find_the_same_rows_late_by_further_terms_of_an_order(
    spark: SparkSession, tmp_path: Path, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("sn", pa.int64()), ("x", pa.int32()), ("s", pa.string())])
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(f"""
        CREATE STREAM d (sn BIGINT, x INT, s STRING)
          WITH (connector = 'files', path = '{tmp_path}/d', format = 'parquet', ordered_by = 'sn, x + 1 DESC, s');
        CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path}/out', format = 'json');
    """)

    def late(number: int, rows: list[tuple[int, int | None, str | None]]) -> int:
        write(tmp_path / "d" / f"{number}.parquet", schema, [{"sn": sn, "x": x, "s": s} for sn, x, s in rows])
        (query,) = run_job(session, "INSERT INTO sink SELECT sn, x, s FROM d ORDER BY sn", QueryMode.DRAIN)
        return query.report().late["d"]

    assert late(1, [(1, 5, "a"), (2, 7, "b")]) == 0
    with monkeypatch.context() as patch:
        by_spark(patch)
        assert late(2, [(2, 8, "a"), (2, 7, "c"), (2, 6, "a")]) == 1
    assert late(3, [(2, 6, None), (2, None, "z"), (3, 0, "a")]) == 2
    assert scans == ["d", "d"]
    assert set(json_rows(tmp_path / "out")) == {(1, 5, "a"), (2, 7, "b"), (2, 7, "c"), (2, 6, "a"), (2, None, "z")}


@pytest.mark.parametrize(
    ("where", "reads"),
    [
        ("o.price > 1", ["o"]),
        ("o.code IN ('a', 'b') OR o.extra IS NULL", ["o"]),
        ("length(o.code) = 2", []),
        ("o.ts > TIMESTAMP '2026-01-01 00:00:00'", []),
    ],
)
def test_which_conditions_workers_evaluate(
    spark: SparkSession, tmp_path: Path, scans: list[str], where: str, reads: list[str]
) -> None:
    write_first(tmp_path)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(STREAMS.format(tmp_path))
    session.sql(f"SELECT o.id, o.ts, upper(o.extra) AS e FROM o WHERE {where}")
    assert scans == reads


@pytest.mark.parametrize(("columns", "shows_arrival"), [("o.id", False), ("o.id, o._tp_time", True)])
def test_only_tasks_that_need_it_are_told_the_time_of_arrival(
    spark: SparkSession,
    tmp_path: Path,
    scans: list[str],
    columns: str,
    shows_arrival: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is another in each batch, and a literal of its plan: Spark would compile the code of each batch anew."""
    write_first(tmp_path)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(STREAMS.format(tmp_path))
    stream = session.sql(f"SELECT {columns} FROM o")
    assert isinstance(stream, Stream)
    stream.frame.explain()
    assert scans == ["o"]
    assert ("null AS arrival" not in capsys.readouterr().out) == shows_arrival


def test_a_file_that_does_not_fit_is_told_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    write_first(tmp_path)
    write(tmp_path / "p" / "2.parquet", pa.schema([("id", pa.string())]), [{"id": "x"}])
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(STREAMS.format(tmp_path))
    with pytest.raises(ConnectorError) as raised:
        drain(session)
    assert raised.value.message == f"{tmp_path}/p/2.parquet: column id is string, but the stream declares int64"
    assert raised.value.hint == "declare the column as the files have it, and CAST it in the query"


@pytest.mark.slow
def test_two_runs_of_one_frame_do_not_touch_each_other_s_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is many batches ahead of the other; both write in foreachBatch, and look at their rows twice."""
    monkeypatch.setattr(dataflow, "Exchange", lambda folder: Exchange(folder, min_bytes=1))
    for number in range(4):
        write(tmp_path / "in o" / f"{number}.parquet", O_SCHEMA, [o_row(number, "c", 2.0, number)])
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    one_file = "format = 'parquet', max_files_per_trigger = '1')"
    session.sql(STREAMS.format(tmp_path).replace("format = 'parquet')", one_file))
    result = session.sql("SELECT o.id FROM o")
    assert isinstance(result, Stream)
    got: dict[str, list[int]] = {"ahead": [], "behind": []}
    ahead_is_done = threading.Event()

    def take(name: str) -> Callable[[DataFrame, int], None]:
        def write_batch(rows: DataFrame, batch: int) -> None:
            if name == "behind":
                rows.count()
                assert ahead_is_done.wait(60)
            got[name] += [row.id for row in rows.collect()]

        return write_batch

    queries = {
        name: result.frame.writeStream.foreachBatch(take(name))
        .option("checkpointLocation", str(tmp_path / name))
        .trigger(availableNow=True)
        .start()
        for name in ("behind", "ahead")
    }
    assert queries["ahead"].awaitTermination(60)
    ahead_is_done.set()
    assert queries["behind"].awaitTermination(60)
    assert {name: sorted(ids) for name, ids in got.items()} == {"ahead": [0, 1, 2, 3], "behind": [0, 1, 2, 3]}
