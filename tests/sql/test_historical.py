"""Queries over ``table(name)``: which statements are such queries, their text for Spark, and errors."""

from __future__ import annotations

import pytest

from watersmeet.errors import SqlSyntaxError, UnsupportedError
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import (
    Explain,
    Historical,
    HistoricalQuery,
    InsertHistorical,
    InsertSelect,
    Select,
    Statement,
)
from watersmeet.sql.table_queries import spark_text


def one(sql: str) -> Statement:
    (statement,) = parse(sql)
    return statement


def query_of(sql: str) -> HistoricalQuery:
    statement = one(sql)
    assert isinstance(statement, Historical)
    return statement.query


def for_spark(sql: str) -> str:
    query = query_of(sql)
    return spark_text(query, {table.name.lower(): f"v_{table.name.lower()}" for table in query.tables}).text


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT count(), min(i) FROM table(left_mu) AS l JOIN table(right_mu) AS r ON l.k = r.kk",
            "SELECT count(*), min(i) FROM `v_left_mu` AS l JOIN `v_right_mu` AS r ON l.k = r.kk",
        ),
        # A view without an alias gets the stream's name.
        ("SELECT a.i FROM table(a), TABLE ( `b` ) WHERE 1=1", "SELECT a.i FROM `v_a` AS `a`, `v_b` AS `b` WHERE 1=1"),
        ("SELECT * FROM table(a)", "SELECT * FROM `v_a` AS `a`"),
        ("SELECT * FROM table(a) TABLESAMPLE (5 ROWS)", "SELECT * FROM `v_a` TABLESAMPLE (5 ROWS)"),
        ("SELECT * FROM (table(a) x JOIN table(B) USING (k))", "SELECT * FROM (`v_a` x JOIN `v_b` AS `B` USING (k))"),
        (
            "SELECT * FROM table(a) LEFT SEMI JOIN table(b) y ON x IN (SELECT z FROM table(a))",
            "SELECT * FROM `v_a` AS `a` LEFT SEMI JOIN `v_b` y ON x IN (SELECT z FROM `v_a` AS `a`)",
        ),
        # Everything else stays unchanged, with comments, blanks and strings.
        (
            (
                "WITH t AS (\n  SELECT 'table(a) count()' /* table(a) */, COUNT ( ) c FROM table(a)\n) -- so\n"
                "SELECT `count` FROM t"
            ),
            (
                "WITH t AS (\n  SELECT 'table(a) count()' /* table(a) */, COUNT ( *) c FROM `v_a` AS `a`\n) -- so\n"
                "SELECT `count` FROM t"
            ),
        ),
        (
            "(SELECT m.count() FROM table(a) m) UNION ALL SELECT 1L GROUP BY ALL LIMIT 3",
            "(SELECT m.count() FROM `v_a` m) UNION ALL SELECT 1L GROUP BY ALL LIMIT 3",
        ),
    ],
)
def test_spark_reads_views_and_the_rest_as_written(sql: str, expected: str) -> None:
    assert for_spark(sql) == expected
    # The same in a script, and after other keywords.
    assert for_spark(f"  {sql}  ; ") == expected
    insert = one(f"INSERT INTO s (x, y) {sql}")
    assert isinstance(insert, InsertHistorical)
    assert (insert.stream, insert.columns) == ("s", ("x", "y"))
    explained = one(f"EXPLAIN {sql}")
    assert isinstance(explained, Explain)
    assert isinstance(explained.statement, Historical)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT a FROM orders", Select),
        ("SELECT table(a) FROM orders", Select),
        ("SELECT 'FROM table(a)' FROM orders -- FROM table(a)", Select),
        ("INSERT INTO s SELECT table FROM orders", InsertSelect),
    ],
)
def test_other_queries_are_streaming(sql: str, kind: type) -> None:
    assert isinstance(one(sql), kind)


@pytest.mark.parametrize(
    ("sql", "others"),
    [
        ("SELECT * FROM table(a), orders o JOIN (pay p CROSS JOIN x) ON f(o.k, y)", ["orders", "pay", "x"]),
        ("WITH b AS (SELECT 1), c(u, v) AS (SELECT * FROM table(a)) SELECT * FROM b, C", []),
        ("SELECT EXTRACT(YEAR FROM orders) FROM table(a) WHERE x IS DISTINCT FROM orders", []),
        ("SELECT * FROM table(a) LATERAL VIEW explode(m) t AS k, orders", []),
        ("SELECT * FROM table(a), spark_catalog.default.orders, range(5), orders(1)", []),
        ("SELECT a, orders FROM table(a) WHERE EXISTS (SELECT 1, orders FROM pay) ORDER BY a, orders", ["pay"]),
    ],
)
def test_plain_names_that_could_be_streams(sql: str, others: list[str]) -> None:
    assert [other.name for other in query_of(sql).others] == others


def test_references_to_arrival_time_are_found() -> None:
    assert query_of("SELECT max(_TP_TIME), `_tp_offset` FROM table(a)").hidden == {"_tp_time", "_tp_offset"}
    assert not query_of("SELECT '_tp_time' FROM table(a)").hidden


AT_ONCE = "leave it out: a query over stored rows runs once, like any query of Spark"
CONDITIONS = "join stored rows by plain conditions: ON a.id = b.id AND b.ts BETWEEN a.ts AND …"
REFUSED = {
    "SELECT * FROM table(a) EMIT CHANGELOG": ("EMIT", 24, AT_ONCE),
    "SELECT * FROM table(a) WHERE x > 1 SETTINGS seek_to = 'latest'": ("SETTINGS", 36, AT_ONCE),
    "SELECT * FROM table(a) JOIN table(b) ON x = y WITHIN INTERVAL '5' MINUTES": ("WITHIN", 47, CONDITIONS),
    "SELECT * FROM table(a) JOIN table(b) ON x = y GRACE PERIOD INTERVAL '5' DAYS": ("GRACE PERIOD", 47, CONDITIONS),
    "SELECT * FROM table(a) ASOF JOIN table(b) MATCH_CONDITION (a.t > b.t)": ("ASOF JOIN", 24, CONDITIONS),
    "SELECT * FROM o JOIN table(a) FOR SYSTEM_TIME AS OF o.ts ON x = y": (
        "FOR SYSTEM_TIME AS OF",
        31,
        "only streams can be joined this way: leave out table( )",
    ),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_streaming_clauses_are_refused(sql: str) -> None:
    clause, column, hint = REFUSED[sql]
    with pytest.raises(UnsupportedError) as raised:
        parse(f"SELECT 1 FROM x;\n{sql}")
    assert str(raised.value) == (
        f"{clause} cannot be used with table(…), which reads the rows stored now (line 2, column {column})\n"
        f"2 | {sql}\n  | {' ' * (column - 1)}{'^' * len(clause.split()[0])}\nhint: {hint}"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT emit final, settings FROM table(a) emit JOIN table(b) settings ON emit.x = settings.x",
        "SELECT grace FROM table(a) within WHERE within.grace = 1",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM table(a)",
    ],
)
def test_streaming_keywords_are_names_for_spark(sql: str) -> None:
    query_of(sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM table('a')", "found 'a', expected a stream name after table ( (line 1, column 21)"),
        ("SELECT * FROM table()", "found ')', expected a stream name after table ( (line 1, column 21)"),
        ("SELECT * FROM table(db.a)", "found '.', expected ')' after table (db (line 1, column 23)"),
        ("SELECT * FROM\ntable(a", "found the end of the statement, expected ')' after table (a (line 2, column 8)"),
    ],
)
def test_a_table_without_a_name(sql: str, message: str) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        parse(sql)
    assert str(raised.value).splitlines()[0] == message


def test_a_query_over_stored_rows_cannot_feed_a_stream() -> None:
    with pytest.raises(UnsupportedError) as raised:
        parse("CREATE STREAM s AS SELECT *\nFROM table(a)")
    assert str(raised.value) == (
        "CREATE STREAM … AS takes a streaming query, but table(…) reads the rows stored now (line 2, column 6)\n"
        "2 | FROM table(a)\n"
        "  |      ^^^^^\n"
        "hint: CREATE STREAM s with its columns, then INSERT INTO s SELECT …"
    )


def test_a_query_over_stored_rows_cannot_change_data() -> None:
    with pytest.raises(UnsupportedError) as raised:
        parse("WITH t AS (SELECT * FROM table(a)) INSERT INTO x SELECT * FROM t")
    assert str(raised.value) == (
        "a query over table(…) cannot INSERT (line 1, column 36)\n"
        "1 | WITH t AS (SELECT * FROM table(a)) INSERT INTO x SELECT * FROM t\n"
        "  |                                    ^^^^^^\n"
        "hint: write INSERT INTO stream WITH … SELECT …"
    )


@pytest.mark.parametrize(
    ("mark", "place"),
    [("count", (2, 8)), ("min", (2, 17)), ("`v_a`", (3, 6)), ("l JOIN", (3, 15)), ("nope", (4, 4)), ("", (4, 8))],
)
def test_positions_in_the_text_for_spark_map_to_the_script(mark: str, place: tuple[int, int]) -> None:
    query = query_of("  -- one line before\nSELECT count(), min(i)\nFROM table(a) l JOIN table(b)\nON nope")
    found = spark_text(query, {"a": "v_a", "b": "v_b"})
    offset = found.text.index(mark) if mark else len(found.text)
    line = found.text.count("\n", 0, offset)
    column = offset - (found.text.rfind("\n", 0, offset) + 1)
    position, excerpt = found.place(line + 1, column)
    assert (position.line, position.col) == place
    assert excerpt.startswith(f"{place[0]} | ")
