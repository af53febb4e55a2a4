"""``table(name)``: what is stored, asked with all of Spark's SQL."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import json_lines, json_rows, run_job, write_lines
from watersmeet.cli.interrupt import Interrupt
from watersmeet.cli.run import show
from watersmeet.errors import BindError, ConnectorError, SqlSyntaxError, UnsupportedError, WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch, Message
from watersmeet.session.session import Session
from watersmeet.session.table_queries import rows_of

pytestmark = pytest.mark.spark

# The stream k: 1 and 2 are replaced, 3 is deleted and comes again, 4 is deleted, 5 comes late after a newer row, and
# of the rows of one time the later one counts, also where it is a delete (7).
CHANGES: list[tuple[object, ...]] = [
    (1, "old", 10, 1),
    (2, "old", 10, 1),
    (3, "old", 10, 1),
    (4, "old", 10, 1),
    (5, "new", 20, 1),
    (6, "first", 10, 1),
    (6, "second", 10, 1),
    (7, "gone", 10, 1),
    (7, None, 10, -1),
    (1, "new", 11, 1),
    (2, "new", 12, 1),
    (3, None, 11, -1),
    (3, "again", 12, 1),
    (4, None, 11, -1),
    (5, "old", 19, 1),
]
HELD = [(1, "new", 11), (2, "new", 12), (3, "again", 12), (5, "new", 20), (6, "second", 10)]
NAMES = ("id", "v", "sec", "_tp_delta")


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    return watersmeet.connect(spark, workspace=tmp_path / "workspace")


def ask(session: Session, sql: str) -> list[tuple[object, ...]]:
    """All rows of the answer, in its order."""
    result = session.sql(sql)
    assert isinstance(result, Batch)
    assert not result.frame.isStreaming
    return rows_of(result.frame)


def keyed(name: str, options: str = "", mode: str = "versioned_kv") -> str:
    """A stream of ``NAMES`` with the key id."""
    return (
        f"CREATE STREAM {name} (id INT, v STRING, sec BIGINT, _tp_delta TINYINT, WATERMARK FOR sec AS sec) "
        f"PRIMARY KEY (id) WITH (event_time_unit = 's'{options}) SETTINGS mode = '{mode}';"
    )


def values(rows: list[tuple[object, ...]]) -> str:
    return ", ".join(f"({', '.join('NULL' if each is None else repr(each) for each in row)})" for row in rows)


# -- which rows ------------------------------------------------------------------------------------------------------


def test_all_rows_of_a_stream_that_appends(session: Session) -> None:
    session.sql("""
        CREATE STREAM clicks (id INT, ts TIMESTAMP);
        INSERT INTO clicks VALUES (1, TIMESTAMP'2026-01-01 10:00:00'), (1, TIMESTAMP'2026-01-01 10:00:00');
        INSERT INTO clicks VALUES (2, TIMESTAMP'2026-01-01 09:00:00'), (3, NULL);
    """)
    # without an event time a row is a bad one, as in a query that runs on
    assert [row[0] for row in ask(session, "SELECT * FROM table(clicks) ORDER BY id")] == [1, 1, 2]
    assert ask(session, "SELECT max(id) FROM table(Clicks) WHERE _tp_time > TIMESTAMP'2020-01-01 00:00:00'") == [(2,)]


@pytest.mark.slow
def test_frontiers_between_the_rows_of_a_derived_stream_are_no_rows(session: Session) -> None:
    session.sql("""
        CREATE STREAM clicks (id INT, sec BIGINT, WATERMARK FOR sec AS sec) WITH (event_time_unit = 's');
        INSERT INTO clicks VALUES (1, 10), (2, NULL), (3, 30);
    """)
    run_job(session, "CREATE STREAM seen AS SELECT id, sec FROM clicks", QueryMode.DRAIN)
    log = session.workspace / "streams" / "seen"
    assert session.spark.read.parquet(str(log)).where("_frontier IS NOT NULL").count() > 0
    assert session.streams.stored(session.streams.catalog.require("seen")).count() == 2
    assert ask(session, "SELECT * FROM table(seen) ORDER BY id") == [(1, 10), (3, 30)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["versioned_kv", "changelog_kv"])
def test_the_newest_row_of_each_key(session: Session, mode: str) -> None:
    session.sql(keyed("k", mode=mode))
    session.sql(f"INSERT INTO k VALUES {values(CHANGES[:9])}")
    session.sql(f"INSERT INTO k VALUES {values(CHANGES[9:])}")
    assert ask(session, "SELECT * FROM table(k) ORDER BY id") == HELD


def test_rows_of_a_key_without_event_time_go_by_arrival(session: Session) -> None:
    session.sql("CREATE MUTABLE STREAM m (k STRING, n INT) PRIMARY KEY (k)")
    session.sql("INSERT INTO m VALUES ('a', 1), ('a', 2), ('b', 1)")
    session.sql("INSERT INTO m (k, _tp_delta) VALUES ('b', -1); INSERT INTO m VALUES ('c', 3)")
    assert ask(session, "SELECT * FROM table(m) ORDER BY k") == [("a", 2), ("c", 3)]


def test_an_update_in_a_changelog_is_a_row_taken_away_and_one_that_comes(session: Session) -> None:
    session.sql(keyed("k", mode="changelog_kv"))
    session.sql("INSERT INTO k VALUES (1, 'a', 10, 1), (2, 'a', 10, 1), (3, 'a', 10, 1)")
    # a new version at another time, one at the same time, and a row that is taken away for good
    session.sql(
        "INSERT INTO k VALUES (1, 'a', 10, -1), (1, 'b', 11, 1), (2, 'a', 10, -1), (2, 'b', 10, 1), (3, 'a', 10, -1)"
    )
    assert ask(session, "SELECT * FROM table(k) ORDER BY id") == [(1, "b", 11), (2, "b", 10)]


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_files(session: Session, tmp_path: Path, format: str) -> None:
    folder = tmp_path / "in"
    for number, part in enumerate((CHANGES[:9], CHANGES[9:])):
        if format == "parquet":
            folder.mkdir(exist_ok=True)
            kinds = pa.schema(list(zip(NAMES, (pa.int32(), pa.string(), pa.int64(), pa.int8()), strict=True)))
            rows = [dict(zip(NAMES, row, strict=True)) for row in part]
            pq.write_table(pa.Table.from_pylist(rows, kinds), folder / f"{number}.parquet")
        elif format == "json":
            write_lines(folder / f"{number}.json", [*json_lines(part, NAMES), "{oops", '{"sec": 99}'], age=number)
        else:
            lines = [",".join("" if each is None else str(each) for each in row) for row in part]
            write_lines(folder / f"{number}.csv", [",".join(NAMES), *lines, "1,2"], age=number)
    header = ", header = 'true'" if format == "csv" else ""
    session.sql(keyed("k", f", connector = 'files', path = '{folder}', format = '{format}'{header}"))
    assert ask(session, "SELECT * FROM table(k) ORDER BY id") == HELD


def test_files_that_append_without_bad_rows(session: Session, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "b.json", ['{"id": 1}', "{oops", '{"id": "x"}'], age=50)
    write_lines(tmp_path / "in" / "a.json", ['{"id": 2}'], age=60)
    session.sql(f"CREATE STREAM f (id INT) WITH (connector = 'files', path = '{tmp_path / 'in'}')")
    # files arrived when they were changed
    arrived = ask(session, "SELECT id, unix_seconds(_tp_time) - 1700000000 FROM table(f) ORDER BY id")
    assert arrived == [(1, 50), (2, 60)]
    # and without an event time the file that was changed last is the newest
    session.sql(
        f"CREATE MUTABLE STREAM m (k INT, id INT) PRIMARY KEY (k) WITH (connector = 'files', path = '{tmp_path / 'm'}')"
    )
    write_lines(tmp_path / "m" / "b.json", ['{"k": 1, "id": 1}', '{"k": 2, "id": 1}'], age=50)
    write_lines(tmp_path / "m" / "a.json", ['{"k": 1, "id": 2}', '{"k": 3, "id": 1}', '{"k": 3, "id": 2}'], age=60)
    assert ask(session, "SELECT * FROM table(m) ORDER BY k") == [(1, 2), (2, 1), (3, 2)]


@pytest.mark.slow
def test_change_records(session: Session, tmp_path: Path) -> None:
    def change(op: str, before: object, after: object, ts_ms: int) -> str:
        return json.dumps({"op": op, "before": before, "after": after, "ts_ms": ts_ms})

    def row(id: int, v: str, ts: int) -> dict[str, object]:
        return {"id": id, "v": v, "ts": ts}

    lines = [change("c", None, row(1, "a", 10), 10), change("c", None, row(2, "a", 10), 10)]
    # at one time, from one line: the image before it is older than the one after it
    lines += [change("u", row(1, "a", 10), row(1, "b", 10), 10), change("d", row(2, "a", 10), None, 20), "oops"]
    write_lines(tmp_path / "in" / "1.json", lines, age=1)
    for mode in ("versioned_kv", "changelog_kv"):
        session.sql(
            f"CREATE STREAM {mode} (id INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (id) WITH "
            f"(connector = 'files', path = '{tmp_path / 'in'}', format = 'debezium-json') SETTINGS mode = '{mode}'"
        )
        assert ask(session, f"SELECT * FROM table({mode})") == [(1, "b", 10)]


# -- Spark's SQL -----------------------------------------------------------------------------------------------------


@pytest.fixture
def sides(session: Session) -> Session:
    session.sql("""
        CREATE MUTABLE STREAM left_mu (i INT, k STRING, k1 STRING) PRIMARY KEY (k, k1);
        CREATE MUTABLE STREAM right_mu (ii INT, kk STRING, kk1 STRING) PRIMARY KEY (kk, kk1);
        INSERT INTO left_mu VALUES (1, 'a', 'b');
        INSERT INTO right_mu VALUES (11, 'a', 'bb');
    """)
    return session


@pytest.mark.sample(4)
def test_aggregates_of_a_join_follow_the_changes(sides: Session) -> None:
    asked = """SELECT count(), min(i), max(i), avg(i), min(ii), max(ii), avg(ii)
        FROM table(left_mu) AS l JOIN table(right_mu) AS r ON l.k = r.kk"""
    before = sides.sql(asked)
    assert rows_of(before.frame) == [(1, 1, 1, 1.0, 11, 11, 11.0)]  # type: ignore[union-attr]
    sides.sql("INSERT INTO left_mu VALUES (2, 'a', 'b')")
    assert ask(sides, asked) == [(1, 2, 2, 2.0, 11, 11, 11.0)]
    sides.sql("INSERT INTO right_mu VALUES (22, 'a', 'bb')")
    assert ask(sides, asked) == [(1, 2, 2, 2.0, 22, 22, 22.0)]
    # an answer is that of the moment in which it was asked for
    assert rows_of(before.frame) == [(1, 1, 1, 1.0, 11, 11, 11.0)]  # type: ignore[union-attr]
    assert not [view.name for view in sides.spark.catalog.listTables() if view.name.startswith("watersmeet_")]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            (
                "WITH t AS (SELECT *, row_number() OVER (PARTITION BY k ORDER BY i DESC) AS n FROM table(left_mu))\n"
                "SELECT k, i FROM t WHERE n = 1 ORDER BY k DESC LIMIT 2"
            ),
            [("c", 5), ("a", 4)],
        ),
        ("SELECT k, count() AS n FROM table(left_mu) GROUP BY ALL HAVING count(*) > 1", [("a", 3)]),
        (
            (
                "(SELECT left_mu.i FROM table(left_mu) WHERE k IN (SELECT kk FROM table(right_mu)) AND i > 3) "
                "UNION ALL SELECT ii FROM table(right_mu)"
            ),
            [(4,), (11,)],
        ),
        # names twice, and one stream twice
        ("SELECT a.k, b.k FROM table(left_mu) a LEFT ANTI JOIN table(right_mu) b ON false", None),
        ("SELECT a.i, b.i FROM table(left_mu) a JOIN table(left_mu) b ON a.k = b.k AND a.i < b.i WHERE b.i = 4", None),
    ],
)
def test_all_of_spark_s_sql(sides: Session, sql: str, expected: list[tuple[object, ...]] | None) -> None:
    sides.sql("INSERT INTO left_mu VALUES (3, 'a', 'c'), (4, 'a', 'd'), (5, 'c', 'd')")
    if expected is not None:
        assert ask(sides, sql) == expected
    elif "ANTI" in sql:
        with pytest.raises(BindError, match=r"`b`\.`k` cannot be resolved.*line 1, column 13"):
            ask(sides, sql)
    else:
        assert sorted(ask(sides, sql), key=repr) == [(1, 4), (3, 4)]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        (
            "SELECT count(),\n  nope FROM table(left_mu)",
            BindError,
            (
                "the query cannot be planned: A column, variable, or function parameter with name `nope` cannot be "
                "resolved. Did you mean one of the following? [`i`, `k`, `k1`]. (line 2, column 3)\n"
                "2 |   nope FROM table(left_mu)\n"
                "  |   ^"
            ),
        ),
        (
            "SELECT i FROM table(left_mu) l WHRE i > 1",
            SqlSyntaxError,
            (
                "Spark cannot read the query: Syntax error at or near 'WHRE'. (line 1, column 32)\n"
                "1 | SELECT i FROM table(left_mu) l WHRE i > 1\n  |                                ^"
            ),
        ),
        (
            "SELECT * FROM table(left_mu) JOIN nowhere",
            BindError,
            (
                "the query cannot be planned: The table or view `nowhere` cannot be found. Verify the spelling and "
                "correctness of the schema and catalog. (line 1, column 35)\n"
                "1 | SELECT * FROM table(left_mu) JOIN nowhere\n"
                "  |                                   ^"
            ),
        ),
    ],
)
def test_what_spark_refuses(
    sides: Session, sql: str, error: type[WatersmeetError], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(error) as raised:
        sides.sql(sql)
    assert str(raised.value) == message
    assert "\tat " not in capfd.readouterr().err


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (
            "CREATE STREAM x (i INT) WITH (connector = 'datagen')",
            "x (datagen) has no rows that table(…) could read (line 1, column 15)",
        ),
        (
            "CREATE STREAM x WITH (connector = 'print')",
            "x (print) has no rows that table(…) could read (line 1, column 15)",
        ),
        ("CREATE STREAM x WITH (connector = 'files', path = '/')", "x declares no columns, so its rows cannot be read"),
    ],
)
def test_streams_of_which_nothing_can_be_read(session: Session, stream: str, message: str) -> None:
    session.sql(stream)
    with pytest.raises(UnsupportedError) as raised:
        session.sql("SELECT * FROM table(x)")
    assert str(raised.value).startswith(message)


def test_explain_refuses_what_takes_no_rows(session: Session) -> None:
    session.sql("CREATE STREAM x (i INT) WITH (connector = 'datagen'); CREATE STREAM y (i INT)")
    with pytest.raises(UnsupportedError, match="x is a source"):
        session.explain("INSERT INTO x SELECT * FROM table(y)")


def test_a_registered_frame_is_not_stored(spark: SparkSession, session: Session) -> None:
    session.register("f", spark.readStream.format("rate").load(), time="timestamp")
    for sql in ("SELECT * FROM table(f)", "EXPLAIN SELECT * FROM table(f)"):
        with pytest.raises(UnsupportedError, match=r"f is a registered DataFrame.*\(line 1, column"):
            session.sql(sql)


def test_a_folder_that_is_gone(session: Session, tmp_path: Path) -> None:
    session.sql(f"CREATE STREAM x (i INT) WITH (connector = 'files', path = '{tmp_path / 'gone'}')")
    with pytest.raises(ConnectorError, match=r"there is no folder .*gone \(line 2, column 6\)"):
        session.sql("SELECT *\nFROM table(x)")


# -- where it goes ---------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
def test_the_answer_goes_into_streams(sides: Session, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    sides.sql(f"CREATE STREAM out WITH (connector = 'files', path = '{tmp_path / 'out'}', format = 'json')")
    sides.sql("CREATE STREAM kept (n INT, tag STRING)")
    copy = "INSERT INTO out SELECT i, 'x' AS tag FROM table(left_mu)"
    assert sides.sql(copy) == sides.sql(copy) == Message("1 row into out")
    assert json_rows(tmp_path / "out") == [(1, "x"), (1, "x")]
    # by position, whatever Spark calls the columns
    twice = "INSERT INTO kept SELECT i, i FROM table(left_mu) JOIN table(right_mu)"
    assert sides.sql(twice) == Message("1 row into kept")
    assert sides.sql("INSERT INTO kept (tag) SELECT k FROM table(left_mu) WHERE i > 99") == Message("0 rows into kept")
    assert ask(sides, "SELECT * FROM table(kept)") == [(1, "1")]
    sides.sql("CREATE STREAM nowhere WITH (connector = 'blackhole')")
    assert sides.sql("INSERT INTO nowhere SELECT * FROM table(kept)") == Message("1 row into nowhere")
    # a delete of all that is there
    gone = sides.sql("INSERT INTO left_mu (k, k1, _tp_delta) SELECT k, k1, -1 FROM table(left_mu)")
    assert gone == Message("1 row into left_mu")
    assert ask(sides, "SELECT count() FROM table(left_mu)") == [(0,)]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("INSERT INTO left_mu SELECT 1 FROM table(left_mu)", BindError, "the query returns 1 columns, left_mu takes 3"),
        (
            "INSERT INTO left_mu SELECT 1 / (i - 1), k, k FROM table(left_mu)",
            WatersmeetError,
            "query over what is stored failed: Division by zero.",
        ),
    ],
)
def test_what_cannot_be_inserted(sides: Session, sql: str, error: type[WatersmeetError], message: str) -> None:
    with pytest.raises(error) as raised:
        sides.sql(sql)
    assert raised.value.message.startswith(message)
    assert ask(sides, "SELECT count() FROM table(left_mu)") == [(1,)]


def test_what_goes_wrong_in_a_worker_is_told_as_it_is(session: Session, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "1.csv", ["ts,id", "1,2"], age=1)
    options = f"connector = 'files', path = '{tmp_path / 'in'}', format = 'csv', header = 'true'"
    session.sql(f"CREATE STREAM x (id INT, ts BIGINT) WITH ({options})")
    with pytest.raises(ConnectorError, match="its first line names the columns in another order"):
        ask(session, "SELECT * FROM table(x)")


def test_the_command_line_prints_it_as_a_table(sides: Session, capsys: pytest.CaptureFixture[str]) -> None:
    script = """SELECT i, k, k, CAST(NULL AS INT) AS nothing, TIMESTAMP'2026-01-01 10:00:00' AS at FROM table(left_mu);
        SELECT i FROM table(left_mu) WHERE i > 99; EXPLAIN SELECT i FROM table(left_mu)"""
    for result in sides.run(script):
        show(result, Interrupt())
    header, _, row, nothing, plan = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()][:5]
    assert header.split() == ["i", "k", "k", "nothing", "at"]
    assert row.split() == ["1", "a", "a", "NULL", "2026-01-01", "10:00:00"]
    assert nothing == "(no rows)"
    assert plan.startswith("Spark batch query over the rows stored now")


def test_ctrl_c_gives_up_an_answer(sides: Session, capsys: pytest.CaptureFixture[str]) -> None:
    slow = sides.sql("SELECT reflect('java.lang.Thread', 'sleep', CAST(100000 + i AS BIGINT)) FROM table(left_mu)")
    interrupt = Interrupt()
    pressed = threading.Timer(1.0, lambda: setattr(interrupt, "signal_number", 2))
    pressed.start()
    begun = time.monotonic()
    show(slow, interrupt)
    assert time.monotonic() - begun < 60
    assert capsys.readouterr().out == ""
