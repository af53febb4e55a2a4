"""Queries over ``table(name)``: the streams that they read, and their EXPLAIN."""

from __future__ import annotations

import pytest

from watersmeet.bind.define import define_outside, define_stream
from watersmeet.bind.table_queries import explain_stored, stored_streams
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import CatalogError, UnsupportedError, WatersmeetError
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, Historical, HistoricalQuery


def query_of(sql: str) -> HistoricalQuery:
    (statement,) = parse(sql)
    assert isinstance(statement, Historical)
    return statement.query


def streams_of(script: str) -> dict[str, StreamDef]:
    statements = [statement for statement in parse(script) if isinstance(statement, CreateStream)]
    return {statement.name.lower(): define_stream(statement) for statement in statements}


STREAMS = streams_of("""
    CREATE STREAM orders (id INT, ts TIMESTAMP);
    CREATE MUTABLE STREAM stock (shop INT, item INT, ts TIMESTAMP) PRIMARY KEY (shop, item);
    CREATE STREAM shown WITH (connector = 'print');
""") | {"people": define_outside("people", "id INT", {"connector": "files", "path": "x"})}


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        (
            "SELECT * FROM table(order)",
            CatalogError,
            "there is no stream order (line 1, column 15)\nhint: did you mean orders?",
        ),
        (
            "SELECT * FROM table(orders) o\nJOIN Stock s ON o.id = s.item",
            UnsupportedError,
            (
                "stock is a stream whose rows come as the query runs, but table(orders) is what is stored now: one "
                "query takes either (line 2, column 6)\n"
                "hint: write table(stock), or leave out table( ): a stream joins a table FOR SYSTEM_TIME AS OF a time"
            ),
        ),
        (
            "SELECT * FROM people p JOIN table(orders) o ON o.id = p.id",
            UnsupportedError,
            (
                "people is an external table: table(orders) is stored, and only streams look up in one "
                "(line 1, column 15)\n"
                "hint: leave out table( ), and join people FOR SYSTEM_TIME AS OF PROCTIME()"
            ),
        ),
        (
            "SELECT * FROM table(people)",
            UnsupportedError,
            (
                "people is an external table: table(…) reads the stored rows of a stream (line 1, column 15)\n"
                "hint: join a stream with it: JOIN people FOR SYSTEM_TIME AS OF PROCTIME()"
            ),
        ),
    ],
)
def test_what_table_takes(sql: str, error: type[WatersmeetError], message: str) -> None:
    with pytest.raises(error) as raised:
        stored_streams(query_of(sql), STREAMS)
    assert str(raised.value) == message


def test_a_cte_hides_a_stream() -> None:
    sql = "WITH stock AS (SELECT * FROM table(orders)) SELECT * FROM stock"
    assert list(stored_streams(query_of(sql), STREAMS)) == ["orders"]


def test_explain() -> None:
    query = query_of("SELECT count() FROM table(orders) o JOIN table(Stock) ON o.id = stock.item")
    assert explain_stored(query, STREAMS, STREAMS["shown"]).splitlines() == [
        "Spark batch query over the rows stored now: it ends by itself and keeps no state",
        "table orders (embedded), for Spark the view watersmeet_orders…",
        "  all rows",
        "  without bad rows, which streaming queries quarantine",
        "table stock (embedded), for Spark the view watersmeet_stock…",
        "  of each shop, item the newest row by ts, of one time the last in its source; none where that is a delete",
        "  without bad rows, which streaming queries quarantine",
        "writes its rows to shown (print), once",
        "Spark SQL: SELECT count(*) FROM `watersmeet_orders` o JOIN `watersmeet_stock` AS `Stock` ON o.id = stock.item",
    ]
