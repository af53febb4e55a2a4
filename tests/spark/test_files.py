"""Jobs over files, from sources to sink: exact answers, bad rows, and what a checkpoint accepts."""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import batch_answer, json_lines, json_rows, run_job, write_lines
from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.connectors.registry import open_sink, open_stored
from watersmeet.errors import CheckpointError, ConnectorError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

NAMES = ("id", "note", "ts")
FILES = 3
STREAMS = """
CREATE STREAM o (id INT, note STRING, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)
  WITH (connector = 'files', path = '{folder}/o', format = '{format}', event_time_unit = 's');
CREATE STREAM p (id INT, note STRING, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)
  WITH (connector = 'files', path = '{folder}/p', format = '{format}', event_time_unit = 's');
CREATE STREAM sink WITH (connector = 'files', path = '{folder}/out', format = 'json');
"""
QUERY = """INSERT INTO sink SELECT o.id, o.note, o.ts, p.ts AS paid, upper(p.note) AS told
FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS WHERE o.id <> 7 EMIT FINAL;"""
ANSWER = """SELECT o.id, o.note, o.ts, p.ts, upper(p.note) FROM o
LEFT JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30 WHERE o.id <> 7"""


def rows_of(seed: int) -> list[tuple[object, ...]]:
    """Rows whose times are out of order by less than the declared delay; some keys and texts are NULL."""
    chance = random.Random(seed)
    return [
        (
            None if chance.random() < 0.05 else chance.randrange(40),
            chance.choice([None, "", "a,b", 'say "x"', "ü"]),
            2 * i + chance.randrange(10),
        )
        for i in range(120)
    ]


def write_stream(folder: Path, format: str, rows: Sequence[tuple[object, ...]], bad: Sequence[str] = ()) -> None:
    """The rows cut into a few files, read in this order; malformed lines stand at the end of the first."""
    size = -(-len(rows) // FILES)
    for number in range(FILES):
        part = rows[number * size : (number + 1) * size]
        path = folder / f"{number}.{format}"
        if format == "parquet":
            folder.mkdir(parents=True, exist_ok=True)
            columns = dict(zip(NAMES, map(list, zip(*part, strict=True)), strict=True))
            pq.write_table(
                pa.table(columns, schema=pa.schema([("id", "int32"), ("note", "string"), ("ts", "int64")])), path
            )
            continue
        lines = json_lines(part, NAMES) if format == "json" else [csv_line(row) for row in part]
        write_lines(path, [*lines, *(bad if number == 0 else ())], age=number)


def csv_line(row: tuple[object, ...]) -> str:
    """NULL is an empty cell."""
    line = io.StringIO()
    csv.writer(line).writerow(row)
    return line.getvalue().strip()


def open_session(spark: SparkSession, folder: Path, format: str = "json") -> Session:
    session = watersmeet.connect(spark, workspace=folder / "workspace")
    session.sql(STREAMS.format(folder=folder, format=format))
    return session


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("format", "bad"),
    [("json", ['{"id": 1, "ts"', '{"id": "x", "ts": 5}']), ("csv", ["1,too,many,cells", "x,a,5"]), ("parquet", [])],
)
def test_a_bounded_run_gives_the_batch_answer(spark: SparkSession, format: str, bad: list[str], tmp_path: Path) -> None:
    o, p = rows_of(1), rows_of(2)
    if format == "csv":
        # CSV has no empty text apart from NULL
        o, p = ([tuple(None if cell == "" else cell for cell in row) for row in rows] for rows in (o, p))
    write_stream(tmp_path / "o", format, o, bad)
    write_stream(tmp_path / "p", format, p)
    session = open_session(spark, tmp_path, format)
    (query,) = run_job(session, QUERY)
    assert json_rows(tmp_path / "out") == batch_answer(ANSWER, o=(NAMES, o), p=(NAMES, p))

    report = query.report()
    in_o = len(o) + len(bad)
    filtered = sum(id == 7 or id is None for id, _, _ in o)
    assert report.rows_in == {"o": in_o, "p": len(p)}
    assert report.quarantined == ({"o": len(bad)} if bad else {})
    assert report.filtered.get("o") == filtered
    assert not any(report.late.values())
    set_aside = "".join(path.read_text() for path in Path(query.checkpoint, "side").glob("*.jsonl"))
    assert set_aside.count("\n") == len(bad)


def test_a_missing_folder_is_told_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    session = open_session(spark, tmp_path)
    with pytest.raises(ConnectorError) as raised:
        run_job(session, QUERY)
    assert raised.value.message == f"there is no folder {tmp_path}/o"


# -- CSV whose first lines name the columns ---------------------------------------------------------------------------


NAMED = """
CREATE STREAM o (id STRING, note STRING, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/o', format = 'csv', header = 'true', csv.sep = ';', event_time_unit = 's');
CREATE STREAM sink WITH (connector = 'files', path = '{0}/out', format = 'json');
"""
COPY = "INSERT INTO sink SELECT id, note, ts FROM o;"


def test_a_folder_that_cannot_be_is_told_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    session = open_session(spark, tmp_path)
    (tmp_path / "taken").write_text("a file")
    for side in ("o", "p"):
        write_stream(tmp_path / side, "json", rows_of(1))
    session.sql(f"CREATE STREAM nowhere WITH (connector = 'files', path = '{tmp_path}/taken/out', format = 'json')")
    with pytest.raises(ConnectorError, match=r"taken/out cannot be used: Not a directory"):
        run_job(session, QUERY.replace("sink", "nowhere"))


def test_first_lines_name_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    # a row that looks like the first line is a row all the same, and so is one of a file with a single row
    write_lines(tmp_path / "o" / "1.csv", ['"ID" ;note;"ts"', "1;a;10", "", "id;note;11"], age=1)
    write_lines(tmp_path / "o" / "2.csv", ["", "id;note;ts", "2;b;12"], age=2)
    write_lines(tmp_path / "o" / "3.csv", ["id;note;ts"], age=3)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    (query,) = run_job(session, NAMED.format(tmp_path) + COPY)
    assert json_rows(tmp_path / "out") == [("1", "a", 10), ("2", "b", 12), ("id", "note", 11)]
    assert query.report().rows_in == {"o": 3}
    assert not query.report().quarantined


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("first", "message", "hint"),
    [
        ("note;id;ts", "names the columns in another order", "declare the columns in the order of the files"),
        ("1;a;10", "does not name the declared columns", "leave out header"),
    ],
)
def test_a_file_with_other_columns_is_refused_also_one_that_comes_later(
    spark: SparkSession, tmp_path: Path, first: str, message: str, hint: str
) -> None:
    write_lines(tmp_path / "o" / "1.csv", ["id;note;ts", "1;a;10"], age=1)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    run_job(session, NAMED.format(tmp_path) + COPY, QueryMode.DRAIN)
    write_lines(tmp_path / "o" / "2.csv", [first, "x;y;11"], age=2)
    with pytest.raises(ConnectorError) as raised:
        run_job(session, COPY, QueryMode.DRAIN)
    assert raised.value.message.endswith(f"o/2.csv: its first line {message}")
    assert raised.value.detail == f"first line: {first.replace(';', ', ')}\ndeclared: id, note, ts"
    assert hint in (raised.value.hint or "")
    assert json_rows(tmp_path / "out") == [("1", "a", 10)]


# -- compressed results -----------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("format", "compression", "ending"),
    [
        ("json", None, "json"),
        ("json", "none", "json"),
        ("json", "gzip", "json.gz"),
        ("csv", None, "csv"),
        ("csv", "none", "csv"),
        ("csv", "gzip", "csv.gz"),
        ("parquet", None, "snappy.parquet"),
        ("parquet", "none", "parquet"),
        ("parquet", "snappy", "snappy.parquet"),
        ("parquet", "gzip", "gz.parquet"),
        ("parquet", "zstd", "zstd.parquet"),
    ],
)
def test_files_are_compressed_and_read_again(
    spark: SparkSession, format: str, compression: str | None, ending: str, tmp_path: Path
) -> None:
    """A batch that is written again, before it with another compression, leaves no file of the first attempt."""
    columns = tuple(StreamColumn(name=name, type=type) for name, type in (("id", "INT"), ("note", "STRING")))

    def stream(**more: str) -> StreamDef:
        return StreamDef(name="s", columns=columns, connector="files", options={**options, **more})

    def write(**more: str) -> None:
        sink = open_sink(stream(**more), tmp_path, changelog=False, show=lambda *_: None)
        sink.write(frame, 0, "q-000000000000")

    options = {"path": str(tmp_path / "out"), "format": format}
    if format == "csv":
        options["header"] = "true"
    chosen = {"compression": compression} if compression is not None else {}
    frame = spark.createDataFrame([(1, "a"), (2, None), (3, "ü")], "id INT, note STRING").coalesce(1)
    write(compression="gzip")
    write(**chosen)
    written = sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith((".", "_")))
    assert written == [f"q-000000000000-00000.{ending}"]
    if format == "parquet":
        found = pq.ParquetFile(tmp_path / "out" / written[0]).metadata.row_group(0).column(0).compression
        assert found == {None: "SNAPPY", "none": "UNCOMPRESSED"}.get(compression, str(compression).upper())
    read = open_stored(spark, stream(**chosen), tmp_path)
    assert sorted(tuple(row) for row in read.select("id", "note").collect()) == [(1, "a"), (2, None), (3, "ü")]


# -- what a checkpoint accepts ----------------------------------------------------------------------------------------


JOIN = "FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '{}' SECONDS"


@pytest.mark.slow
def test_what_a_checkpoint_accepts(spark: SparkSession, tmp_path: Path) -> None:
    def run(select: str, mode: QueryMode) -> list[tuple[object, ...]]:
        """The job with another query, as a new session meets it; all rows of the sink by then."""
        session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
        run_job(session, f"INSERT INTO sink {select}", mode)
        return json_rows(tmp_path / "out")

    open_session(spark, tmp_path)
    write_lines(tmp_path / "o" / "1.json", json_lines([(1, "a", 100)], NAMES), age=1)
    write_lines(tmp_path / "p" / "1.json", json_lines([(1, "b", 101)], NAMES), age=1)
    assert run(f"SELECT o.id, p.ts {JOIN.format(30)}", QueryMode.DRAIN) == [(1, 101)]

    with pytest.raises(CheckpointError) as refused:
        run(f"SELECT o.id, p.ts {JOIN.format(60)}", QueryMode.DRAIN)
    message = str(refused.value)
    assert "the query has changed since the checkpoint" in message
    assert "join_1, IntervalJoin upper: was " in message

    # the same columns of both sides, put otherwise: the state is the same and goes on
    write_lines(tmp_path / "p" / "2.json", json_lines([(1, "c", 99)], NAMES), age=2)
    found = run(f"SELECT p.ts - 1 AS before, o.id * 2 AS twice {JOIN.format(30)}", QueryMode.BOUNDED)
    assert found == [(1, 101), (98, 2)]

    with pytest.raises(CheckpointError, match="is sealed"):
        run(f"SELECT o.id, p.ts {JOIN.format(30)}", QueryMode.DRAIN)


@pytest.mark.sample(2)
@pytest.mark.parametrize("limit", [None, 1])
def test_a_bounded_run_takes_as_many_batches_as_limits_ask(
    spark: SparkSession, tmp_path: Path, limit: int | None
) -> None:
    options = {} if limit is None else {"max_files_per_trigger": str(limit)}
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    for name in "op":
        for number in (1, 2):
            rows = [(number, name, 100 * number)]
            write_lines(tmp_path / name / f"{number}.json", json_lines(rows, NAMES), age=number)
        given = {"connector": "files", "path": str(tmp_path / name), "event_time_unit": "s", **options}
        listed = ", ".join(f"{key} = '{value}'" for key, value in given.items())
        session.sql(
            f"CREATE STREAM {name} (id INT, note STRING, ts BIGINT, WATERMARK FOR ts AS ts - 5) WITH ({listed})"
        )
    session.sql(f"CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path / 'out'}')")
    select = "SELECT o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id AND p.id < 2 WITHIN INTERVAL '30' SECONDS"
    [query] = run_job(session, f"INSERT INTO sink {select}", QueryMode.BOUNDED)
    assert json_rows(tmp_path / "out") == [(1, 100), (2, None)]
    assert query.report().batches == (1 if limit is None else 3)


def test_lines_that_only_spark_decodes_keep_their_place(spark: SparkSession, tmp_path: Path) -> None:
    # workers leave a line that begins with a space to Spark; the last line of a key wins
    lines = [f'{" " * (number % 3 == 1)}{{"k": {number % 4}, "v": {number}}}' for number in range(40)]
    write_lines(tmp_path / "in" / "1.json", lines, age=1)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(f"""
        CREATE MUTABLE STREAM s (k INT, v INT) PRIMARY KEY (k) WITH (connector = 'files', path = '{tmp_path / "in"}');
        CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path / "out"}', changelog = 'true');
    """)
    run_job(session, "INSERT INTO sink SELECT k, v FROM s", QueryMode.BOUNDED)
    total: Counter[tuple[object, ...]] = Counter()
    for *row, weight in json_rows(tmp_path / "out"):
        total[tuple(row)] += int(str(weight))
    assert {row for row, n in total.items() if n} == {(0, 36), (1, 37), (2, 38), (3, 39)}
