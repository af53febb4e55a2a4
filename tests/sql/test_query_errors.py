"""The exact texts of errors in queries: what was found and expected, where, and what was probably meant."""

from __future__ import annotations

import pytest

from tests.support.parse_errors import check_error
from watersmeet.errors import SqlSyntaxError, UnsupportedError

# Name of the case: the SQL, and what the user sees.
CASES: dict[str, tuple[str, str]] = {
    "empty select list": (
        "SELECT FROM t",
        (
            "found 'FROM', expected an expression or '*' after SELECT (line 1, column 8)\n"
            "1 | SELECT FROM t\n"
            "  |        ^^^^"
        ),
    ),
    "comma before from": (
        "SELECT a, FROM t",
        (
            "found 'FROM', expected an expression after ',' (line 1, column 11)\n"
            "1 | SELECT a, FROM t\n"
            "  |           ^^^^"
        ),
    ),
    "from nothing": (
        "SELECT a FROM",
        (
            "found the end of the statement, expected a stream name or '(' after FROM (line 1, column 14)\n"
            "1 | SELECT a FROM\n"
            "  |              ^"
        ),
    ),
    "where nothing": (
        "SELECT a FROM t WHERE",
        (
            "found the end of the statement, expected a condition after WHERE (line 1, column 22)\n"
            "1 | SELECT a FROM t WHERE\n"
            "  |                      ^"
        ),
    ),
    "missing operand": (
        "SELECT a FROM t WHERE a = AND b",
        (
            "found 'AND', expected an expression after '=' (line 1, column 27)\n"
            "1 | SELECT a FROM t WHERE a = AND b\n"
            "  |                           ^^^"
        ),
    ),
    "misspelt where taken for an alias": (
        "SELECT a FROM t WHER a = 1",
        (
            "found 'a', expected JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end "
            "of the statement (line 1, column 22)\n"
            "1 | SELECT a FROM t WHER a = 1\n"
            "  |                      ^\n"
            "hint: did you mean WHERE instead of WHER?"
        ),
    ),
    "order without by": (
        "SELECT a FROM t ORDER a",
        (
            "found 'a', expected JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end "
            "of the statement (line 1, column 23)\n"
            "1 | SELECT a FROM t ORDER a\n"
            "  |                       ^\n"
            "hint: did you mean ORDER BY instead of ORDER?"
        ),
    ),
    "misspelt join": (
        "SELECT a FROM t JION u ON t.a = u.a",
        (
            "found 'u', expected JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end "
            "of the statement (line 1, column 22)\n"
            "1 | SELECT a FROM t JION u ON t.a = u.a\n"
            "  |                      ^\n"
            "hint: did you mean JOIN instead of JION?"
        ),
    ),
    "misspelt left join": (
        "SELECT a FROM t LEFT OUTER JION u ON t.a = u.a",
        (
            "found 'LEFT', expected JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end "
            "of the statement (line 1, column 17)\n"
            "1 | SELECT a FROM t LEFT OUTER JION u ON t.a = u.a\n"
            "  |                 ^^^^\n"
            "hint: did you mean JOIN instead of JION?"
        ),
    ),
    "join without condition": (
        "SELECT a FROM t JOIN u",
        (
            "found the end of the statement, expected ON or USING after the second stream of a JOIN (line "
            "1, column 23)\n"
            "1 | SELECT a FROM t JOIN u\n"
            "  |                       ^"
        ),
    ),
    "empty condition": (
        "SELECT a FROM t JOIN u ON WHERE x",
        (
            "found 'WHERE', expected a condition after ON (line 1, column 27)\n"
            "1 | SELECT a FROM t JOIN u ON WHERE x\n"
            "  |                           ^^^^^"
        ),
    ),
    "within before on": (
        "SELECT a FROM t JOIN u WITHIN INTERVAL '5' MINUTES ON t.a = u.a",
        (
            "found 'WITHIN', expected ON or USING after the second stream of a JOIN (line 1, column 24)\n"
            "1 | SELECT a FROM t JOIN u WITHIN INTERVAL '5' MINUTES ON t.a = u.a\n"
            "  |                        ^^^^^^\n"
            "hint: WITHIN, GRACE PERIOD and ALLOWED LATENESS follow the ON condition"
        ),
    ),
    "within without interval": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN 5 MINUTES",
        (
            "found '5', expected INTERVAL or '(' after WITHIN (line 1, column 44)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN 5 MINUTES\n"
            "  |                                            ^\n"
            "hint: write INTERVAL '5' MINUTES"
        ),
    ),
    "within nothing": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN",
        (
            "found the end of the statement, expected INTERVAL or '(' after WITHIN (line 1, column 43)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN\n"
            "  |                                           ^"
        ),
    ),
    "misspelt within": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHN INTERVAL '5' MINUTES",
        (
            "found 'WITHN', expected WITHIN, GRACE PERIOD, ALLOWED LATENESS, JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, "
            "UNION, EMIT, SETTINGS or the end of the statement (line 1, column 37)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHN INTERVAL '5' MINUTES\n"
            "  |                                     ^^^^^\n"
            "hint: did you mean WITHIN?"
        ),
    ),
    "interval without unit": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL '5' GRACE PERIOD INTERVAL '5' SECONDS",
        (
            "found 'GRACE', expected SECONDS, MINUTES, HOURS, DAYS or another unit of time after INTERVAL "
            "(line 1, column 57)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL '5' GRACE PERIOD INTERVAL '5' SECONDS\n"
            "  |                                                         ^^^^^"
        ),
    ),
    "misspelt unit": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL '5' MINUTS",
        (
            "found 'MINUTS', expected SECONDS, MINUTES, HOURS, DAYS or another unit of time after INTERVAL "
            "(line 1, column 57)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL '5' MINUTS\n"
            "  |                                                         ^^^^^^\n"
            "hint: did you mean MINUTES?"
        ),
    ),
    "interval of a unit and a time of day": (
        "SELECT a FROM t WHERE ts > x - INTERVAL '1 day 2:03'",
        (
            "found '1 day 2:03', expected numbers with units, such as '1 minute 30 seconds' after INTERVAL (line 1, "
            "column 41)\n"
            "1 | SELECT a FROM t WHERE ts > x - INTERVAL '1 day 2:03'\n"
            "  |                                         ^^^^^^^^^^^^"
        ),
    ),
    "interval whose second unit is missing": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL 1 DAY 2",
        (
            "found the end of the statement, expected SECONDS, MINUTES, HOURS, DAYS or another unit of time after "
            "INTERVAL '2' (line 1, column 60)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL 1 DAY 2\n"
            "  |                                                            ^"
        ),
    ),
    "interval of units that are computed": (
        "SELECT ts - INTERVAL n MINUTES 3 SECONDS AS t FROM a",
        (
            "an INTERVAL of several units must be of numbers (line 1, column 13)\n"
            "1 | SELECT ts - INTERVAL n MINUTES 3 SECONDS AS t FROM a\n"
            "  |             ^^^^^^^^"
        ),
    ),
    "interval of months and days": (
        "SELECT ts - INTERVAL '1 month 3 days' AS t FROM a",
        (
            "an INTERVAL cannot have months or years beside other units (line 1, column 13)\n"
            "1 | SELECT ts - INTERVAL '1 month 3 days' AS t FROM a\n"
            "  |             ^^^^^^^^\n"
            "hint: write two: ts + INTERVAL '1' MONTH + INTERVAL '3' DAYS"
        ),
    ),
    "distinct on": (
        "SELECT DISTINCT ON (id) n, ts FROM a",
        (
            "DISTINCT ON is not supported (line 1, column 21)\n"
            "1 | SELECT DISTINCT ON (id) n, ts FROM a\n"
            "  |                     ^^"
        ),
    ),
    "interval that does not look like its units": (
        "SELECT ts - INTERVAL '1:03' DAY TO SECOND AS t FROM a",
        (
            "found '1:03', expected 'day hour:minute:second' after INTERVAL (line 1, column 22)\n"
            "1 | SELECT ts - INTERVAL '1:03' DAY TO SECOND AS t FROM a\n"
            "  |                      ^^^^^^"
        ),
    ),
    "interval from a smaller unit to a larger one": (
        "SELECT ts - INTERVAL '1:03' SECOND TO MINUTE AS t FROM a",
        (
            "there is no INTERVAL from SECOND to MINUTE (line 1, column 22)\n"
            "1 | SELECT ts - INTERVAL '1:03' SECOND TO MINUTE AS t FROM a\n"
            "  |                      ^^^^^^\n"
            "hint: write YEAR TO MONTH, or two of DAY, HOUR, MINUTE and SECOND, the larger one first"
        ),
    ),
    "window with one end": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN (INTERVAL '5' MINUTES)",
        (
            "found ')', expected ',' and a second INTERVAL after the first INTERVAL of WITHIN ( (line 1, "
            "column 65)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN (INTERVAL '5' MINUTES)\n"
            "  |                                                                 ^"
        ),
    ),
    "grace without period": (
        "SELECT a FROM t JOIN u ON t.a = u.a GRACE INTERVAL '5' MINUTES",
        (
            "found 'INTERVAL', expected PERIOD after GRACE (line 1, column 43)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a GRACE INTERVAL '5' MINUTES\n"
            "  |                                           ^^^^^^^^"
        ),
    ),
    "within twice": (
        "SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL '5' MINUTES WITHIN INTERVAL '5' MINUTES",
        (
            "a join takes only one WITHIN (line 1, column 65)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WITHIN INTERVAL '5' MINUTES WITHIN INTERVAL '5' "
            "MINUTES\n"
            "  |                                                                 ^^^^^^"
        ),
    ),
    "within after where": (
        "SELECT a FROM t JOIN u ON t.a = u.a WHERE a > 1 WITHIN INTERVAL '5' MINUTES",
        (
            "found 'WITHIN', expected GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end of the "
            "statement (line 1, column 49)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a WHERE a > 1 WITHIN INTERVAL '5' MINUTES\n"
            "  |                                                 ^^^^^^\n"
            "hint: WITHIN follows the ON condition of its join, before WHERE"
        ),
    ),
    "emit nothing": (
        "SELECT a FROM t EMIT",
        (
            "found the end of the statement, expected FINAL, CHANGELOG or EVERY after EMIT (line 1, column 21)\n"
            "1 | SELECT a FROM t EMIT\n"
            "  |                     ^"
        ),
    ),
    "emit changes": (
        "SELECT a FROM t EMIT CHANGES",
        (
            "found 'CHANGES', expected FINAL, CHANGELOG or EVERY after EMIT (line 1, column 22)\n"
            "1 | SELECT a FROM t EMIT CHANGES\n"
            "  |                      ^^^^^^^\n"
            "hint: did you mean CHANGELOG?"
        ),
    ),
    "emit before where": (
        "SELECT a FROM t EMIT FINAL WHERE a > 1",
        (
            "found 'WHERE', expected SETTINGS or the end of the statement (line 1, column 28)\n"
            "1 | SELECT a FROM t EMIT FINAL WHERE a > 1\n"
            "  |                            ^^^^^\n"
            "hint: EMIT and SETTINGS belong at the end of the query"
        ),
    ),
    "emit twice": (
        "SELECT a FROM t EMIT FINAL EMIT FINAL",
        (
            "EMIT appears twice (line 1, column 28)\n"
            "1 | SELECT a FROM t EMIT FINAL EMIT FINAL\n"
            "  |                            ^^^^"
        ),
    ),
    "emit in a subquery": (
        "SELECT a FROM (SELECT a FROM t EMIT FINAL) x",
        (
            "EMIT is not valid inside a subquery (line 1, column 32)\n"
            "1 | SELECT a FROM (SELECT a FROM t EMIT FINAL) x\n"
            "  |                                ^^^^\n"
            "hint: EMIT applies to the whole query: put it at the end of the statement"
        ),
    ),
    "emit in a cte": (
        "WITH y AS (SELECT a FROM t EMIT CHANGELOG) SELECT * FROM y",
        (
            "EMIT is not valid inside a subquery (line 1, column 28)\n"
            "1 | WITH y AS (SELECT a FROM t EMIT CHANGELOG) SELECT * FROM y\n"
            "  |                            ^^^^\n"
            "hint: EMIT applies to the whole query: put it at the end of the statement"
        ),
    ),
    "delete in a cte": (
        "WITH y AS (DELETE FROM t) SELECT * FROM y",
        (
            "found 'DELETE', expected SELECT, WITH or '(' (line 1, column 12)\n"
            "1 | WITH y AS (DELETE FROM t) SELECT * FROM y\n"
            "  |            ^^^^^^"
        ),
    ),
    "emit as alias": (
        "SELECT a FROM t AS emit",
        (
            "EMIT cannot be an alias (line 1, column 20)\n"
            "1 | SELECT a FROM t AS emit\n"
            "  |                    ^^^^\n"
            "hint: put it in backquotes: `emit`"
        ),
    ),
    "setting without quotes": (
        "SELECT a FROM t SETTINGS a = latest",
        (
            "found 'latest', expected a string, a number, TRUE or FALSE after a = (line 1, column 30)\n"
            "1 | SELECT a FROM t SETTINGS a = latest\n"
            "  |                              ^^^^^^\n"
            "hint: write 'latest' in quotes"
        ),
    ),
    "open subquery": (
        "SELECT a FROM (SELECT a FROM t",
        (
            "found the end of the statement, expected ',', an operator or ')' to close the '(' of line 1, "
            "column 15 (line 1, column 31)\n"
            "1 | SELECT a FROM (SELECT a FROM t\n"
            "  |                               ^"
        ),
    ),
    "open call": (
        "SELECT f(a FROM t",
        (
            "found 'FROM', expected ',', an operator or ')' to close the '(' of line 1, column 9 (line 1, "
            "column 12)\n"
            "1 | SELECT f(a FROM t\n"
            "  |            ^^^^"
        ),
    ),
    "cast without as": (
        "SELECT CAST(a INT) FROM t",
        (
            "found 'INT', expected AS after CAST (line 1, column 15)\n"
            "1 | SELECT CAST(a INT) FROM t\n"
            "  |               ^^^"
        ),
    ),
    "case without end": (
        "SELECT CASE WHEN a THEN 1 FROM t",
        (
            "found 'FROM', expected END after CASE (line 1, column 27)\n"
            "1 | SELECT CASE WHEN a THEN 1 FROM t\n"
            "  |                           ^^^^"
        ),
    ),
    "open text": (
        "SELECT 'abc FROM t",
        (
            "the string that starts here is not closed (line 1, column 8)\n"
            "1 | SELECT 'abc FROM t\n"
            "  |        ^\n"
            "hint: close it with '"
        ),
    ),
    "open comment": (
        "SELECT /* abc FROM t",
        (
            "the comment that starts here is not closed (line 1, column 8)\n"
            "1 | SELECT /* abc FROM t\n"
            "  |        ^^\n"
            "hint: close it with */"
        ),
    ),
    "open name": (
        "SELECT `abc FROM t",
        (
            "the quoted name that starts here is not closed (line 1, column 8)\n"
            "1 | SELECT `abc FROM t\n"
            "  |        ^\n"
            "hint: close it with `"
        ),
    ),
    "as of behind the condition": (
        "SELECT a FROM t JOIN u ON t.a = u.a FOR SYSTEM_TIME AS OF t.ts",
        (
            "FOR SYSTEM_TIME AS OF is not valid here (line 1, column 37)\n"
            "1 | SELECT a FROM t JOIN u ON t.a = u.a FOR SYSTEM_TIME AS OF t.ts\n"
            "  |                                     ^^^\n"
            "hint: it follows the name of its table, before ON: JOIN rates FOR SYSTEM_TIME AS OF o.ts r ON …"
        ),
    ),
    "for update": (
        "SELECT a FROM t FOR UPDATE",
        ("FOR is not supported (line 1, column 17)\n1 | SELECT a FROM t FOR UPDATE\n  |                 ^^^"),
    ),
    "hint": (
        "SELECT /*+ BROADCAST(t) */ a FROM t",
        (
            "optimizer hints are not supported: they have no effect on a streaming join (line 1, column 8)\n"
            "1 | SELECT /*+ BROADCAST(t) */ a FROM t\n"
            "  |        ^^^^^^^^^^^^^^^^^^^\n"
            "hint: leave out /*+ … */"
        ),
    ),
    "hint in a subquery": (
        "SELECT a\nFROM (SELECT\n  /*+ BROADCAST(t),\n SHUFFLE_HASH(u) */ a FROM t JOIN u ON t.a = u.a)",
        (
            "optimizer hints are not supported: they have no effect on a streaming join (line 3, column 3)\n"
            "3 |   /*+ BROADCAST(t),\n"
            "  |   ^^^^^^^^^^^^^^^^^\n"
            "hint: leave out /*+ … */"
        ),
    ),
    "collation in a condition": (
        "SELECT a FROM t JOIN u ON t.a COLLATE UTF8_LCASE = u.a",
        (
            "the collation UTF8_LCASE is not supported: text is compared by its bytes (UTF8_BINARY) "
            "(line 1, column 27)\n"
            "1 | SELECT a FROM t JOIN u ON t.a COLLATE UTF8_LCASE = u.a\n"
            "  |                           ^\n"
            "hint: leave it out; to ignore case, compare lower(…) of both sides"
        ),
    ),
    "unnest with offset": (
        "SELECT a FROM t, UNNEST(x) AS y WITH OFFSET AS n",
        (
            "WITH OFFSET is not supported (line 1, column 33)\n"
            "1 | SELECT a FROM t, UNNEST(x) AS y WITH OFFSET AS n\n"
            "  |                                 ^^^^\n"
            "hint: WITH ORDINALITY counts elements, from 1"
        ),
    ),
    "cross apply": (
        "SELECT a FROM t CROSS APPLY explode(x) AS y",
        (
            "APPLY is not supported (line 1, column 17)\n"
            "1 | SELECT a FROM t CROSS APPLY explode(x) AS y\n"
            "  |                 ^^^^^"
        ),
    ),
    "unnest without a condition": (
        "SELECT a FROM t LEFT JOIN UNNEST(x) AS y",
        (
            "found the end of the statement, expected ON or USING after the second stream of a JOIN "
            "(line 1, column 41)\n"
            "1 | SELECT a FROM t LEFT JOIN UNNEST(x) AS y\n"
            "  |                                         ^"
        ),
    ),
    "asof without match condition": (
        "SELECT a FROM t ASOF JOIN u ON t.a = u.a",
        (
            "found the end of the statement, expected MATCH_CONDITION after the second stream of an ASOF "
            "JOIN (line 1, column 41)\n"
            "1 | SELECT a FROM t ASOF JOIN u ON t.a = u.a\n"
            "  |                                         ^"
        ),
    ),
    "match condition without asof": (
        "SELECT a FROM t JOIN u MATCH_CONDITION (t.a > u.a) ON t.a = u.a",
        (
            "only an ASOF JOIN takes MATCH_CONDITION (line 1, column 17)\n"
            "1 | SELECT a FROM t JOIN u MATCH_CONDITION (t.a > u.a) ON t.a = u.a\n"
            "  |                 ^^^^\n"
            "hint: write ASOF JOIN or LEFT ASOF JOIN"
        ),
    ),
    "system time without as": (
        "SELECT a FROM t JOIN u FOR SYSTEM_TIME OF x ON t.a = u.a",
        (
            "found 'OF', expected AS OF after FOR SYSTEM_TIME (line 1, column 40)\n"
            "1 | SELECT a FROM t JOIN u FOR SYSTEM_TIME OF x ON t.a = u.a\n"
            "  |                                        ^^"
        ),
    ),
    "too many arguments": (
        "SELECT abs(1,2,3) FROM t",
        (
            "the function takes at most 1 argument, not 3 (line 1, column 17)\n"
            "1 | SELECT abs(1,2,3) FROM t\n"
            "  |                 ^"
        ),
    ),
    "second statement of a line": (
        "SELECT a FROM t; SELECT b FROM u WHER x; SELECT 1",
        (
            "found 'x', expected JOIN, WHERE, GROUP BY, ORDER BY, LIMIT, UNION, EMIT, SETTINGS or the end "
            "of the statement (line 1, column 39)\n"
            "1 | SELECT a FROM t; SELECT b FROM u WHER x; SELECT 1\n"
            "  |                                       ^\n"
            "hint: did you mean WHERE instead of WHER?"
        ),
    ),
    "natural join": (
        "SELECT a FROM a NATURAL JOIN b USING (k)",
        (
            "a NATURAL JOIN takes no condition: it joins by the columns that both sides have (line 1, column 17)\n"
            "1 | SELECT a FROM a NATURAL JOIN b USING (k)\n"
            "  |                 ^^^^^^^\n"
            "hint: leave out NATURAL, or ON and USING"
        ),
    ),
    "parameter": (
        "SELECT $$ FROM t",
        ("a parameter is not supported (line 1, column 8)\n1 | SELECT $$ FROM t\n  |        ^"),
    ),
    "text as a stream": (
        "SELECT a FROM 't'",
        (
            "found 't', expected a stream name or '(' after FROM (line 1, column 15)\n"
            "1 | SELECT a FROM 't'\n"
            "  |               ^^^"
        ),
    ),
    "where twice": (
        "SELECT a FROM t WHERE b WHERE c",
        (
            "WHERE appears twice (line 1, column 25)\n"
            "1 | SELECT a FROM t WHERE b WHERE c\n"
            "  |                         ^^^^^"
        ),
    ),
}
UNSUPPORTED = {
    "for update",
    "hint",
    "hint in a subquery",
    "collation in a condition",
    "unnest with offset",
    "cross apply",
    "distinct on",
    "parameter",
}


@pytest.mark.parametrize("name", CASES)
def test_error_text(name: str) -> None:
    check_error(*CASES[name], UnsupportedError if name in UNSUPPORTED else SqlSyntaxError)
