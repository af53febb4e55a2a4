"""The parser: statements and their dataclasses."""

from __future__ import annotations

from decimal import Decimal

import pytest
from sqlglot import exp

from watersmeet.errors import Position, UnsupportedError
from watersmeet.expressions.nodes import StreamJoin, SystemTime, Within, interval_parts
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import EmitMode
from watersmeet.sql.parse import is_complete, parse
from watersmeet.sql.statements import (
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    InsertSelect,
    InsertValues,
    Query,
    Select,
    Show,
    ShowCreate,
    Statement,
    StopQuery,
)


def one(sql: str) -> Statement:
    """Return the only statement of ``sql``."""
    (statement,) = parse(sql)
    return statement


def query(sql: str) -> Query:
    """Return the query of ``sql``."""
    statement = one(sql)
    assert isinstance(statement, Select)
    return statement.query


def stream(sql: str) -> CreateStream:
    """Return the stream that ``sql`` creates."""
    statement = one(sql)
    assert isinstance(statement, CreateStream)
    return statement


def joins(sql: str) -> list[exp.Join]:
    """Return the joins of a query, in order."""
    return list(query(sql).select.args["joins"])


def span(interval: exp.Expr | None) -> tuple[object, str]:
    """Return the amount and the unit of an interval."""
    assert isinstance(interval, exp.Interval)
    return interval_parts(interval)


def within(join: exp.Join) -> tuple[tuple[object, str], tuple[object, str]]:
    """Return the bounds of WITHIN before and after the left row."""
    node = join.args["within"]
    assert isinstance(node, Within)
    return span(node.this), span(node.expression)


# Streams


def test_a_stream_with_columns_watermark_and_options() -> None:
    found = stream(
        """CREATE STREAM orders (
          order_id BIGINT, customer_id BIGINT, amount DOUBLE, ts TIMESTAMP,
          WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS
        ) WITH (connector = 'kafka', topic = 'orders', format = 'json');"""
    )
    assert [column.name for column in found.columns] == ["order_id", "customer_id", "amount", "ts"]
    assert [column.type.sql("spark") for column in found.columns] == ["BIGINT", "BIGINT", "DOUBLE", "TIMESTAMP"]
    assert found.columns[0].position == Position(2, 11)
    assert found.watermark is not None
    assert found.watermark.column == "ts"
    assert found.watermark.position == Position(3, 11)
    assert span(found.watermark.delay) == (5, "SECOND")
    assert found.options == {"connector": "kafka", "topic": "orders", "format": "json"}
    assert found.options_positions["topic"] == Position(4, 38)
    assert (found.mutable, found.if_not_exists, found.query, found.primary_key) == (False, False, None, ())


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("string", "STRING"),
        ("int", "INT"),
        ("tinyint", "TINYINT"),
        ("smallint", "SMALLINT"),
        ("boolean", "BOOLEAN"),
        ("binary", "BINARY"),
        ("date", "DATE"),
        ("float", "FLOAT"),
        ("DECIMAL(10,2)", "DECIMAL(10, 2)"),
        ("TIMESTAMP", "TIMESTAMP"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("ARRAY<INT>", "ARRAY<INT>"),
        ("STRUCT<x: INT, y: ARRAY<STRING>>", "STRUCT<x: INT, y: ARRAY<STRING>>"),
        ("MAP<STRING, DOUBLE>", "MAP<STRING, DOUBLE>"),
    ],
)
def test_types(written: str, spark: str) -> None:
    (column,) = stream(f"CREATE STREAM s (c {written})").columns
    assert column.type.sql("spark") == spark


@pytest.mark.parametrize(
    ("sql", "col"),
    [
        ("SELECT a.id FROM a JOIN b ON collate(a.name, 'UNICODE_CI') = b.name", 46),
        ("SELECT a.id FROM a JOIN b ON a.id = b.id AND a.name > b.name COLLATE 'UNICODE'", 70),
        ("SELECT a.id FROM a WHERE a.name COLLATE UTF8_LCASE = 'x'", 26),
        ("SELECT name COLLATE UNICODE, count(*) FROM a GROUP BY name COLLATE UNICODE", 8),
        ("SELECT name FROM a GROUP BY name HAVING max(name) COLLATE UTF8_LCASE > 'x'", 41),
        ("SELECT name FROM a ORDER BY name COLLATE UNICODE", 29),
        ("SELECT CAST(a.name AS STRING COLLATE UTF8_LCASE) FROM a", 38),
        ("SELECT a.id FROM a JOIN b ON CAST(a.names AS ARRAY<STRING COLLATE UNICODE>) = b.names", 67),
        ("SELECT from_json(a.doc, 'name STRING COLLATE UNICODE').name FROM a", 8),
        ("SELECT try_variant_get(a.v, '$.name', 'varchar(9) collate UNICODE') FROM a", 8),
        ("SELECT id FROM a WHERE name IN (SELECT name COLLATE UTF8_LCASE FROM b)", 40),
        ("CREATE STREAM s (names ARRAY<STRING COLLATE UTF8_LCASE>)", 45),
        ("CREATE STREAM s (person STRUCT<name: STRING COLLATE UTF8_LCASE>)", 53),
        ("CREATE TABLE s (id INT, name VARCHAR(9) COLLATE UTF8_BINARY_RTRIM)", 41),
    ],
)
def test_collations_are_refused(sql: str, col: int) -> None:
    with pytest.raises(UnsupportedError, match=r"the collation .* is not supported") as refused:
        parse(sql)
    assert refused.value.position == Position(1, col)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.id FROM a JOIN b ON a.name COLLATE UTF8_BINARY = b.name",
        "SELECT a.id FROM a WHERE collate(a.name, 'utf8_binary') = 'STRING COLLATE UNICODE'",
        "SELECT collation(name), is_valid_utf8(name) FROM a",
        "CREATE STREAM s (name STRING COLLATE UTF8_BINARY, n INT)",
        "SELECT name COLLATE UNICODE FROM table(a)",
    ],
)
def test_binary_collation_is_accepted(sql: str) -> None:
    assert len(parse(sql)) == 1


@pytest.mark.parametrize(
    ("clause", "delay"),
    [
        ("ts - INTERVAL '5' SECONDS", (Decimal(5), "SECOND")),
        ("ts - INTERVAL 2 minute", (Decimal(2), "MINUTE")),
        ("ts - INTERVAL '1.5 hours'", (Decimal("1.5"), "HOUR")),
        ("ts", None),
    ],
)
def test_watermark_delays(clause: str, delay: tuple[Decimal, str] | None) -> None:
    watermark = stream(f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS {clause})").watermark
    assert watermark is not None
    if delay is None:
        assert watermark.delay is None
    else:
        assert span(watermark.delay) == delay


def test_a_watermark_on_sequence_numbers_has_a_number_for_delay() -> None:
    watermark = stream(
        "CREATE STREAM s (sn BIGINT, WATERMARK FOR sn AS sn - 10) WITH (event_time_unit = 'row')"
    ).watermark
    assert watermark is not None
    assert watermark.delay == exp.Literal.number(10)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE MUTABLE STREAM s (i int, k string, k1 string) PRIMARY KEY (k, k1)",
        "CREATE MUTABLE STREAM s (i int, k string, k1 string, PRIMARY KEY (k, k1))",
        "CREATE MUTABLE STREAM s (i int, PRIMARY KEY (k, k1) NOT ENFORCED, k string, k1 string)",
    ],
)
def test_primary_keys(sql: str) -> None:
    found = stream(sql)
    assert found.mutable
    assert found.primary_key == ("k", "k1")
    assert [column.name for column in found.columns] == ["i", "k", "k1"]


def test_a_primary_key_at_its_column() -> None:
    assert stream("CREATE STREAM s (id INT PRIMARY KEY, v INT)").primary_key == ("id",)


def test_clauses_after_the_columns_can_be_in_any_order() -> None:
    found = stream(
        "CREATE STREAM IF NOT EXISTS rates (currency string, ts TIMESTAMP) SETTINGS mode = 'versioned_kv', n = 3 "
        "WITH (path = 'x') PRIMARY KEY (currency) AS SELECT currency, ts FROM raw SETTINGS m = TRUE EMIT FINAL"
    )
    assert found.if_not_exists
    assert found.settings == {"mode": "versioned_kv", "n": 3}
    assert found.options == {"path": "x"}
    assert found.primary_key == ("currency",)
    assert found.query is not None
    assert found.query.settings == {"m": True}
    assert found.query.emit is EmitMode.FINAL


def test_option_keys_can_be_dotted_and_quoted() -> None:
    found = stream(
        "CREATE STREAM s (id INT) WITH ('kafka.bootstrap.servers' = 'h:1', kafka.group.id = 'g', table = 't', "
        "header = true, rows = 100000)"
    )
    assert found.options == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.group.id": "g",
        "table": "t",
        "header": "true",
        "rows": "100000",
    }


def test_columns_can_have_names_of_types_and_clauses() -> None:
    sql = "CREATE STREAM `my stream` (timestamp BIGINT, date DATE, key STRING, `select` INT, within INT, watermark INT)"
    names = [column.name for column in stream(sql).columns]
    assert names == ["timestamp", "date", "key", "select", "within", "watermark"]
    assert query("SELECT t.timestamp, timestamp, within, grace AS emit FROM t WHERE timestamp > t.date").settings == {}


def test_a_lookup_table() -> None:
    found = one("CREATE TABLE customers (id INT) WITH (connector = 'jdbc', lookup_cache_ttl = '60 seconds')")
    assert isinstance(found, CreateTable)
    assert found.options == {"connector": "jdbc", "lookup_cache_ttl": "60 seconds"}


# Other statements


def test_insert_values() -> None:
    found = one("INSERT INTO left_append (i, k) VALUES (1, 'a'), (-2, NULL)")
    assert isinstance(found, InsertValues)
    assert (found.stream, found.columns) == ("left_append", ("i", "k"))
    assert found.rows == (
        (exp.Literal.number(1), exp.Literal.string("a")),
        (exp.Neg(this=exp.Literal.number(2)), exp.Null()),
    )
    assert position_of(found.rows[1][0]) == Position(1, 50)


@pytest.mark.parametrize("columns", ["", " (a, b)"])
def test_insert_select(columns: str) -> None:
    found = one(f"INSERT INTO sink{columns} WITH x AS (SELECT 1) SELECT * FROM x EMIT CHANGELOG")
    assert isinstance(found, InsertSelect)
    assert found.columns == (("a", "b") if columns else ())
    assert found.query.emit is EmitMode.CHANGELOG


def test_small_statements() -> None:
    sql = (
        "SHOW STREAMS; SHOW TABLES; SHOW QUERIES; SHOW CREATE STREAM s; DESCRIBE s; DESC STREAM s; DROP STREAM s; "
        "DROP TABLE IF EXISTS `t`; STOP QUERY q"
    )
    whole = [(type(statement), statement.position.col) for statement in parse(sql)]
    assert [kind for kind, _ in whole] == [Show, Show, Show, ShowCreate, Describe, Describe, Drop, Drop, StopQuery]
    drop = parse(sql)[7]
    assert isinstance(drop, Drop)
    assert (drop.name, drop.if_exists, drop.kind) == ("t", True, "TABLE")
    assert drop.source == "DROP TABLE IF EXISTS `t`"


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT a FROM t EMIT FINAL", Select),
        ("INSERT INTO s SELECT a FROM t EMIT FINAL", InsertSelect),
        ("CREATE STREAM s AS SELECT a FROM t EMIT FINAL", CreateStream),
    ],
)
def test_explain(sql: str, kind: type) -> None:
    found = one(f"EXPLAIN {sql}")
    assert isinstance(found, Explain)
    assert isinstance(found.statement, kind)
    assert found.statement.source == sql
    assert isinstance(found.query, Query)
    assert found.query.emit is EmitMode.FINAL


# Joins


@pytest.mark.parametrize(
    ("words", "side", "kind"),
    [
        ("JOIN", "", ""),
        ("INNER JOIN", "", "INNER"),
        ("LEFT JOIN", "LEFT", ""),
        ("RIGHT OUTER JOIN", "RIGHT", "OUTER"),
        ("FULL JOIN", "FULL", ""),
        ("FULL OUTER JOIN", "FULL", "OUTER"),
        ("LEFT SEMI JOIN", "LEFT", "SEMI"),
        ("RIGHT SEMI JOIN", "RIGHT", "SEMI"),
        ("RIGHT ANTI JOIN", "RIGHT", "ANTI"),
        ("LEFT ANTI JOIN", "LEFT", "ANTI"),
    ],
)
def test_kinds_of_joins(words: str, side: str, kind: str) -> None:
    (join,) = joins(
        f"SELECT o.a FROM orders o {words} payments p ON o.id = p.id WITHIN INTERVAL '10' MINUTES "
        "GRACE PERIOD INTERVAL '1' MINUTE EMIT FINAL"
    )
    assert (join.side, join.kind, join.this.alias) == (side, kind, "p")
    assert within(join) == ((10, "MINUTE"), (10, "MINUTE"))
    assert span(join.args["grace"]) == (1, "MINUTE")


@pytest.mark.parametrize(
    "interval",
    ["INTERVAL '1' DAY", "INTERVAL 1 DAY", "INTERVAL '1 day'", "INTERVAL 1 days", "INTERVAL '1 days'"],
)
def test_within_after_a_condition_that_ends_in_an_interval(interval: str) -> None:
    (join,) = joins(
        f"SELECT * FROM a JOIN b ON a.id = b.id AND a.ts < b.ts + {interval} WITHIN {interval} GRACE PERIOD {interval} "
        "WHERE a.x > 1"
    )
    assert within(join) == ((1, "DAY"), (1, "DAY"))
    assert span(join.args["grace"]) == (1, "DAY")
    (compared,) = join.args["on"].find_all(exp.LT)
    assert span(compared.expression.expression) == (1, "DAY")


def test_a_window_with_two_ends() -> None:
    (join,) = joins("SELECT * FROM a JOIN b ON a.id = b.id WITHIN (INTERVAL '5' MINUTES, INTERVAL -1 MINUTE)")
    assert within(join) == ((5, "MINUTE"), (-1, "MINUTE"))


def test_a_window_belongs_to_the_join_it_follows() -> None:
    first, second, third = joins(
        "SELECT * FROM a JOIN b ON a.u = b.u JOIN c ON a.u = c.u WITHIN INTERVAL '4' HOURS LEFT JOIN d USING (u) "
        "GRACE PERIOD INTERVAL 1 SECOND ORDER BY a.t"
    )
    assert type(first) is exp.Join
    assert isinstance(second, StreamJoin)
    assert within(second) == ((4, "HOUR"), (4, "HOUR"))
    assert "within" not in third.args
    assert span(third.args["grace"]) == (1, "SECOND")


def test_windows_in_subqueries_and_ctes() -> None:
    found = query(
        "WITH x AS (SELECT * FROM a JOIN b ON a.i = b.i WITHIN INTERVAL 5 MINUTES) "
        "SELECT * FROM (SELECT * FROM x JOIN c ON x.i = c.i WITHIN INTERVAL 3 MINUTES) y EMIT FINAL"
    )
    assert {within(join)[0][0] for join in found.select.find_all(StreamJoin)} == {3, 5}


def test_a_temporal_join_with_the_clause_before_or_after_the_alias() -> None:
    for clause in ("FOR SYSTEM_TIME AS OF o.t VERSIONED ON v r", "r FOR SYSTEM_TIME AS OF o.t VERSIONED ON v"):
        (join,) = joins(f"SELECT * FROM orders o LEFT JOIN rates {clause} ON o.c = r.c")
        assert join.this.alias == "r"
        version = join.this.args["version"]
        assert isinstance(version, SystemTime)
        assert version.expression.name == "t"
        assert version.args["versioned_on"].name == "v"


def test_asof_joins() -> None:
    (join,) = joins(
        "SELECT * FROM trades t LEFT ASOF JOIN quotes q "
        "MATCH_CONDITION (t.ts >= q.ts AND t.ts - q.ts <= INTERVAL '5' SECONDS) ON t.sym = q.sym"
    )
    assert (join.method, join.side, join.this.alias) == ("ASOF", "LEFT", "q")
    assert isinstance(join.args["match_condition"], exp.And)
    (join,) = joins("SELECT * FROM trades ASOF JOIN quotes MATCH_CONDITION (NEAREST(a.ts, b.ts)) ON a.s = b.s")
    assert (join.method, join.side, join.this.alias) == ("ASOF", "", "")


def test_streaming_clauses_are_never_rendered() -> None:
    for sql in (
        "SELECT * FROM a JOIN b ON a.i = b.i WITHIN INTERVAL 5 MINUTES",
        "SELECT * FROM a JOIN b ON a.i = b.i GRACE PERIOD INTERVAL 5 MINUTES",
        "SELECT * FROM a JOIN b FOR SYSTEM_TIME AS OF a.t ON a.i = b.i",
        "SELECT * FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.i = b.i",
    ):
        with pytest.raises(ValueError, match="Unsupported expression type"):
            query(sql).select.sql("spark")


# The end of a query


@pytest.mark.parametrize(
    "end", ["EMIT CHANGELOG SETTINGS a = 1, b.c = 'x'", "SETTINGS a = 1, b.c = 'x' EMIT CHANGELOG;"]
)
def test_emit_and_settings_in_either_order(end: str) -> None:
    found = query(f"SELECT count(), min(i) FROM a JOIN b ON a.k = b.k GROUP BY k {end} -- done")
    assert found.emit is EmitMode.CHANGELOG
    assert found.settings == {"a": 1, "b.c": "x"}
    assert found.settings_positions["b.c"].line == 1


def test_values_of_settings() -> None:
    sql = "SELECT 1 SETTINGS a = 102400000, b = -1.5, c = TRUE, d = 'latest', e = false"
    assert query(sql).settings == {"a": 102400000, "b": -1.5, "c": True, "d": "latest", "e": False}


def test_clauses_are_never_aliases() -> None:
    found = query("SELECT a FROM t EMIT FINAL")
    assert found.select.args["from_"].this.alias == ""
    assert query("SELECT a FROM t AS `emit` SETTINGS x = 1").select.args["from_"].this.alias == "emit"


def test_a_union_is_one_query() -> None:
    found = query("SELECT a FROM t UNION ALL SELECT b FROM u EMIT FINAL")
    assert isinstance(found.select, exp.Union)
    assert isinstance(query("((SELECT a FROM t)) EMIT FINAL").select, exp.Select)


# Scripts, comments and positions


def test_a_script_with_comments() -> None:
    sql = "-- a; b\nSELECT 'x;y' FROM t; /* c; /* d */ ; */\n\nSHOW STREAMS;;\n-- the end"
    first, second = parse(sql)
    assert first.position == Position(2, 1)
    assert second.position == Position(4, 1)
    assert parse(" -- nothing\n;") == []


def test_every_node_has_a_position() -> None:
    found = query(
        "SELECT o.a,\n  count(), 'x' || b\nFROM o\n  LEFT JOIN p ON o.id = p.id AND o.x > 5\n"
        "  WITHIN INTERVAL '5' MINUTES"
    )
    tree = found.select
    (join,) = tree.args["joins"]
    condition = join.args["on"]
    nodes = {
        "select": tree,
        "column": tree.expressions[0],
        "function": tree.expressions[1],
        "operator": tree.expressions[2],
        "stream": tree.args["from_"].this,
        "join": join,
        "condition": condition,
        "literal": condition.expression.expression,
        "within": join.args["within"],
        "interval": join.args["within"].this,
    }
    assert {name: position_of(node) for name, node in nodes.items()} == {
        "select": Position(1, 1),
        "column": Position(1, 8),
        "function": Position(2, 3),
        "operator": Position(2, 12),
        "stream": Position(3, 6),
        "join": Position(4, 3),
        "condition": Position(4, 18),
        "literal": Position(4, 40),
        "within": Position(5, 3),
        "interval": Position(5, 10),
    }
    assert position_of(None) is None


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("-- a comment", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- and so on", True),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 'it''s', 'it\\'s';", True),
        ("SELECT 1 /* ;", False),
        ("SELECT 1; SELECT 2", False),
    ],
)
def test_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
