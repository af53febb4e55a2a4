"""The exact texts of errors in statements: what was found and expected, where, and what was probably meant."""

from __future__ import annotations

import pytest

from tests.support.parse_errors import check_error
from watersmeet.errors import SqlSyntaxError, UnsupportedError
from watersmeet.sql.parse import parse

# Name of the case: the SQL, and what the user sees.
CASES: dict[str, tuple[str, str]] = {
    "misspelt statement": (
        "SELEC a FROM t",
        (
            "found 'SELEC', expected SELECT, WITH, CREATE, INSERT, EXECUTE, EXPLAIN, SHOW, DESCRIBE, DROP or STOP "
            "(line 1, column 1)\n"
            "1 | SELEC a FROM t\n"
            "  | ^^^^^\n"
            "hint: did you mean SELECT?"
        ),
    ),
    "update": (
        "UPDATE t SET a = 1",
        (
            "found 'UPDATE', expected SELECT, WITH, CREATE, INSERT, EXECUTE, EXPLAIN, SHOW, DESCRIBE, DROP or STOP "
            "(line 1, column 1)\n"
            "1 | UPDATE t SET a = 1\n"
            "  | ^^^^^^\n"
            "hint: INSERT INTO a stream with a PRIMARY KEY replaces the row of the same key"
        ),
    ),
    "delete": (
        "DELETE FROM t",
        (
            "found 'DELETE', expected SELECT, WITH, CREATE, INSERT, EXECUTE, EXPLAIN, SHOW, DESCRIBE, DROP or STOP "
            "(line 1, column 1)\n"
            "1 | DELETE FROM t\n"
            "  | ^^^^^^\n"
            "hint: to delete a row, INSERT one with its PRIMARY KEY and a _tp_delta of -1; DROP STREAM deletes all rows"
        ),
    ),
    "unknown statement": (
        "FROB x",
        (
            "found 'FROB', expected SELECT, WITH, CREATE, INSERT, EXECUTE, EXPLAIN, SHOW, DESCRIBE, DROP or STOP "
            "(line 1, column 1)\n"
            "1 | FROB x\n"
            "  | ^^^^"
        ),
    ),
    "create what": (
        "CREATE VIEW x AS SELECT 1",
        (
            "found 'VIEW', expected STREAM, MUTABLE STREAM, TABLE or INDEX after CREATE (line 1, column 8)\n"
            "1 | CREATE VIEW x AS SELECT 1\n"
            "  |        ^^^^"
        ),
    ),
    "mutable table": (
        "CREATE MUTABLE TABLE x (a INT)",
        (
            "found 'TABLE', expected STREAM after MUTABLE (line 1, column 16)\n"
            "1 | CREATE MUTABLE TABLE x (a INT)\n"
            "  |                ^^^^^"
        ),
    ),
    "misspelt stream": (
        "CREATE STRAEM x (a INT)",
        (
            "found 'STRAEM', expected STREAM, MUTABLE STREAM, TABLE or INDEX after CREATE (line 1, column 8)\n"
            "1 | CREATE STRAEM x (a INT)\n"
            "  |        ^^^^^^\n"
            "hint: did you mean STREAM?"
        ),
    ),
    "stream without anything": (
        "CREATE STREAM x",
        (
            "found the end of the statement, expected '(', PRIMARY KEY, WITH, SETTINGS or AS (line 1, "
            "column 16)\n"
            "1 | CREATE STREAM x\n"
            "  |                ^"
        ),
    ),
    "open column list": (
        "CREATE STREAM x (a INT",
        (
            "found the end of the statement, expected ',', ')' or PRIMARY KEY (line 1, column 23)\n"
            "1 | CREATE STREAM x (a INT\n"
            "  |                       ^"
        ),
    ),
    "comma at the end of the columns": (
        "CREATE STREAM x (a INT,)",
        (
            "found ')', expected a column name after ',' (line 1, column 24)\n"
            "1 | CREATE STREAM x (a INT,)\n"
            "  |                        ^"
        ),
    ),
    "misspelt type": (
        "CREATE STREAM x (a INTT)",
        (
            "found 'INTT', expected a type after the column a (line 1, column 20)\n"
            "1 | CREATE STREAM x (a INTT)\n"
            "  |                    ^^^^\n"
            "hint: did you mean INT?"
        ),
    ),
    "not null": (
        "CREATE STREAM x (a INT NOT NULL)",
        (
            "NOT NULL is not supported on a column (line 1, column 24)\n"
            "1 | CREATE STREAM x (a INT NOT NULL)\n"
            "  |                        ^^^\n"
            "hint: leave it out; a row without an event time is quarantined anyway"
        ),
    ),
    "watermark of another column": (
        "CREATE STREAM x (a INT, WATERMARK FOR b AS c)",
        (
            "found 'c', but a watermark for b uses b itself (line 1, column 44)\n"
            "1 | CREATE STREAM x (a INT, WATERMARK FOR b AS c)\n"
            "  |                                            ^\n"
            "hint: write WATERMARK FOR b AS b - INTERVAL '5' SECONDS"
        ),
    ),
    "watermark without interval": (
        "CREATE STREAM x (a INT, WATERMARK FOR b AS b - 'x')",
        (
            "found 'x', expected INTERVAL or a number after '-' (line 1, column 48)\n"
            "1 | CREATE STREAM x (a INT, WATERMARK FOR b AS b - 'x')\n"
            "  |                                                ^^^\n"
            "hint: write INTERVAL '5' MINUTES"
        ),
    ),
    "option without quotes": (
        "CREATE STREAM x (a INT) WITH (a = kafka)",
        (
            "found 'kafka', expected a string, a number, TRUE or FALSE after a = (line 1, column 35)\n"
            "1 | CREATE STREAM x (a INT) WITH (a = kafka)\n"
            "  |                                   ^^^^^\n"
            "hint: write 'kafka' in quotes"
        ),
    ),
    "options without comma": (
        "CREATE STREAM x (a INT) WITH (a = 1 b = 2)",
        (
            "found 'b', expected ',' or ')' (line 1, column 37)\n"
            "1 | CREATE STREAM x (a INT) WITH (a = 1 b = 2)\n"
            "  |                                     ^"
        ),
    ),
    "option twice": (
        "CREATE STREAM x (a INT) WITH (a = 1, a = 2)",
        (
            "a appears twice (line 1, column 38)\n"
            "1 | CREATE STREAM x (a INT) WITH (a = 1, a = 2)\n"
            "  |                                      ^"
        ),
    ),
    "misspelt with": (
        "CREATE STREAM x (a INT) WIHT (a = 1)",
        (
            "found 'WIHT', expected PRIMARY KEY, WITH, SETTINGS, AS or the end of the statement (line 1, "
            "column 25)\n"
            "1 | CREATE STREAM x (a INT) WIHT (a = 1)\n"
            "  |                         ^^^^\n"
            "hint: did you mean WITH?"
        ),
    ),
    "insert without into": (
        "INSERT t VALUES (1)",
        ("found 't', expected INTO after INSERT (line 1, column 8)\n1 | INSERT t VALUES (1)\n  |        ^"),
    ),
    "open values": (
        "INSERT INTO t VALUES (1, 2",
        (
            "found the end of the statement, expected ',', an operator or ')' to close the '(' of line 1, "
            "column 22 (line 1, column 27)\n"
            "1 | INSERT INTO t VALUES (1, 2\n"
            "  |                           ^"
        ),
    ),
    "insert nothing": (
        "INSERT INTO t",
        (
            "found the end of the statement, expected '(', VALUES, SELECT or WITH after INSERT INTO t (line "
            "1, column 14)\n"
            "1 | INSERT INTO t\n"
            "  |              ^"
        ),
    ),
    "collation of a column": (
        "CREATE STREAM s (a STRING COLLATE UTF8_LCASE)",
        (
            "the collation UTF8_LCASE is not supported: text is compared by its bytes (UTF8_BINARY) "
            "(line 1, column 27)\n"
            "1 | CREATE STREAM s (a STRING COLLATE UTF8_LCASE)\n"
            "  |                           ^^^^^^^\n"
            "hint: leave it out; to ignore case, compare lower(…) of both sides"
        ),
    ),
    "show what": (
        "SHOW STREEMS",
        (
            "found 'STREEMS', expected STREAMS, TABLES, QUERIES or CREATE STREAM after SHOW (line 1, column "
            "6)\n"
            "1 | SHOW STREEMS\n"
            "  |      ^^^^^^^\n"
            "hint: did you mean STREAMS?"
        ),
    ),
    "drop what": (
        "DROP VIEW x",
        ("found 'VIEW', expected STREAM, TABLE or INDEX after DROP (line 1, column 6)\n1 | DROP VIEW x\n  |      ^^^^"),
    ),
    "drop two": (
        "DROP STREAM a, b",
        ("found ',', expected the end of the statement (line 1, column 14)\n1 | DROP STREAM a, b\n  |              ^"),
    ),
    "stop what": (
        "STOP q",
        ("found 'q', expected QUERY after STOP (line 1, column 6)\n1 | STOP q\n  |      ^"),
    ),
    "explain what": (
        "EXPLAIN SHOW STREAMS",
        (
            "found 'SHOW', expected SELECT, WITH, INSERT INTO, CREATE STREAM or EXECUTE STATEMENT SET after EXPLAIN "
            "(line 1, column 9)\n"
            "1 | EXPLAIN SHOW STREAMS\n"
            "  |         ^^^^"
        ),
    ),
    "explain without query": (
        "EXPLAIN CREATE STREAM x (a INT) WITH (x=1)",
        (
            "EXPLAIN takes a statement that contains a query (line 1, column 9)\n"
            "1 | EXPLAIN CREATE STREAM x (a INT) WITH (x=1)\n"
            "  |         ^^^^^^\n"
            "hint: SELECT, INSERT INTO ... SELECT or CREATE STREAM ... AS"
        ),
    ),
    "clause alone": (
        "EMIT FINAL",
        (
            "found 'EMIT', expected SELECT, WITH, CREATE, INSERT, EXECUTE, EXPLAIN, SHOW, DESCRIBE, DROP or STOP "
            "(line 1, column 1)\n"
            "1 | EMIT FINAL\n"
            "  | ^^^^"
        ),
    ),
    "position in a script": (
        (
            "-- two statements\n"
            "SHOW STREAMS;\n"
            "\n"
            "SELECT o.a\n"
            "FROM orders o\n"
            "\tJOIN payments p ON o.id = p.id WITHIN ITERVAL '5' MINUTES;\n"
            "SHOW TABLES;"
        ),
        (
            "found 'ITERVAL', expected INTERVAL or '(' after WITHIN (line 6, column 40)\n"
            "6 | \tJOIN payments p ON o.id = p.id WITHIN ITERVAL '5' MINUTES;\n"
            "  | \t                                      ^^^^^^^\n"
            "hint: did you mean INTERVAL?"
        ),
    ),
    "long line": (
        (
            "SELECT column_0, column_1, column_2, column_3, column_4, column_5, column_6, column_7, "
            "column_8, column_9, column_10, column_11, column_12, column_13, column_14, column_15, "
            "column_16, column_17, column_18, column_19, column_20, column_21, column_22, column_23, "
            "column_24, column_25, column_26, column_27, column_28, column_29 FROM t WHRE x = 1"
        ),
        (
            "found 'x', expected JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end "
            "of the statement (line 1, column 339)\n"
            "1 | ...column_26, column_27, column_28, column_29 FROM t WHRE x = 1\n"
            "  |                                                           ^\n"
            "hint: did you mean WHERE instead of WHRE?"
        ),
    ),
    "values without brackets": (
        "INSERT INTO t VALUES 1",
        (
            "found '1', expected '(' after VALUES (line 1, column 22)\n"
            "1 | INSERT INTO t VALUES 1\n"
            "  |                      ^"
        ),
    ),
}
UNSUPPORTED = {
    "not null",
    "collation of a column",
}


@pytest.mark.parametrize("name", CASES)
def test_error_text(name: str) -> None:
    check_error(*CASES[name], UnsupportedError if name in UNSUPPORTED else SqlSyntaxError)


def test_deep_nesting_is_reported() -> None:
    sql = "SELECT " + "(" * 3000 + "a" + ")" * 3000
    with pytest.raises(SqlSyntaxError, match="nested too deeply"):
        parse(sql)
