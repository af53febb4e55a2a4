"""The answers to Nexmark's queries over all rows, by DuckDB, and the comparison with what an engine found.

They are written independently of the queries.  Where a query is a changelog its answer is the sum of the changes; all
windows have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.nexmark.events import STREAMS
from benchmarks.nexmark.generator import SIDE_INPUT

#: The column of a changelog that says whether a row comes or goes.
DELTA = "_tp_delta"
_ALL = "SELECT * FROM {0}"


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer to a query.

    ``rows`` are its rows.  What ``compared`` selects from them and from an engine's must be equal.  Where rows tie, so
    that engines may choose, each row ``of_these`` selects from an engine's must be one of ``among``.
    """

    rows: str
    compared: str = _ALL
    of_these: str = _ALL
    among: str = ""


_EURO = "CAST(0.908 AS DECIMAL(3, 3)) * CAST(price AS DECIMAL(19, 0))"
_OPEN = "auction a JOIN bid b ON b.auction = a.id AND b.date_time >= a.date_time AND b.date_time <= a.expires"
_START = "to_timestamp(epoch_ms(date_time) // 10000 * 10)"
_RANKS = {"total": "TRUE", "rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000"}
_RANKS["rank3"] = "price >= 1000000"
_BIDS = ", ".join(f"sum(({test})::INT)::BIGINT AS {rank}_bids" for rank, test in _RANKS.items())
_DISTINCT = ", ".join(
    f"count(DISTINCT CASE WHEN {test} THEN {what} END) AS {rank}_{what}s"
    for what in ("bidder", "auction")
    for rank, test in _RANKS.items()
)
_WON = "max_by(b, (b.price, -epoch_us(b.date_time)))"
_WINNERS = f"SELECT a, {_WON} AS b FROM {_OPEN} GROUP BY a"
_OF_AUCTION = "id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra"
_AUCTION_COLUMNS = ", ".join(f"a.{name}" for name in _OF_AUCTION.split(", "))
_COUNTED = (
    "SELECT auction, count(*) AS num, (epoch_ms(date_time) // 2000 - slide) * 2000 AS began "
    "FROM bid, range(5) AS slides(slide) GROUP BY ALL"
)
_SESSIONS = (
    "SELECT bidder, date_time, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time, extra) AS session FROM ("
    "SELECT *, coalesce((date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time, extra) > "
    "INTERVAL 10 SECONDS)::INT, 1) AS begins FROM bid)"
)
_AUCTION_TEXTS = (
    "a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, "
)
_AUCTION_TEXTS += "a.category, a.extra AS auction_extra"
_HOT = "('apple', 'google', 'facebook', 'baidu')"

REFERENCES: dict[str, Reference] = {
    "q0": Reference("SELECT auction, bidder, price, date_time, extra FROM bid"),
    "q1": Reference(f"SELECT auction, bidder, {_EURO} AS price, date_time, extra FROM bid"),
    "q2": Reference("SELECT auction, price FROM bid WHERE auction // 123 * 123 = auction"),
    "q3": Reference(
        "SELECT p.name, p.city, p.state, a.id FROM person p, auction a "
        "WHERE a.seller = p.id AND a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')"
    ),
    "q4": Reference(
        f"SELECT (a).category AS category, sum((b).price) / count(*) AS final FROM ({_WINNERS}) GROUP BY 1",
        "SELECT category, round(final, 3) FROM {0}",
    ),
    "q5": Reference(
        f"SELECT auction, num FROM ({_COUNTED}) QUALIFY num = max(num) OVER (PARTITION BY began)",
    ),
    "q6": Reference(
        "SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY won, id ROWS 10 PRECEDING) AS price FROM ("
        f"SELECT (a).seller AS seller, (a).id AS id, (b).price AS price, (b).date_time AS won FROM ({_WINNERS}))",
        "SELECT seller, round(price, 3) FROM {0}",
    ),
    "q7": Reference(
        f"WITH most AS (SELECT {_START} AS began, max(price) AS price FROM bid GROUP BY 1) "
        "SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b, most m WHERE b.price = m.price "
        "AND b.date_time >= m.began AND b.date_time <= m.began + INTERVAL 10 SECONDS"
    ),
    "q8": Reference(
        f"SELECT id, name, {_START} AS stime FROM person "
        f"WHERE row(id, {_START}) IN (SELECT row(seller, {_START}) FROM auction)"
    ),
    "q9": Reference(
        f"SELECT {', '.join(f'(a).{name} AS {name}' for name in _OF_AUCTION.split(', '))}, (b).auction AS auction, "
        "(b).bidder AS bidder, (b).price AS price, (b).date_time AS bid_time, (b).extra AS bid_extra "
        f"FROM ({_WINNERS})",
        f"SELECT {_OF_AUCTION}, auction, price, bid_time FROM {{0}}",
        among=f"SELECT {_AUCTION_COLUMNS}, b.auction, b.bidder, b.price, b.date_time, b.extra FROM {_OPEN}",
    ),
    "q10": Reference(
        "SELECT auction, bidder, price, date_time, extra, strftime(date_time, '%Y-%m-%d') AS dt, "
        "strftime(date_time, '%H:%M') AS hm FROM bid"
    ),
    "q11": Reference(
        "SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, "
        f"max(date_time) + INTERVAL 10 SECONDS AS endtime FROM ({_SESSIONS}) GROUP BY bidder, session"
    ),
    # the clock decides on the windows: only their sum is certain
    "q12": Reference(
        "SELECT bidder, count(*) AS bid_count, now() AS starttime, now() AS endtime FROM bid GROUP BY bidder",
        "SELECT bidder, sum(bid_count) FROM {0} GROUP BY bidder",
    ),
    "q13": Reference(
        "SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid b, side_input s "
        "WHERE s.key = b.auction - b.auction // 10000 * 10000"
    ),
    "q14": Reference(
        f"SELECT auction, bidder, {_EURO} AS price, CASE WHEN hour(date_time) IN (7, 19) THEN 'otherTime' "
        "WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime' ELSE 'nightTime' END AS bid_time_type, date_time, extra, "
        "length(regexp_replace(extra, '[^c]', '', 'g')) AS c_counts "
        f"FROM bid WHERE {_EURO} > 1000000 AND {_EURO} < 50000000"
    ),
    "q15": Reference(f"SELECT date_time::DATE AS day, {_BIDS}, {_DISTINCT} FROM bid GROUP BY day"),
    "q16": Reference(
        f"SELECT channel, date_time::DATE AS day, strftime(max(date_time), '%H:%M') AS minute, {_BIDS}, {_DISTINCT} "
        "FROM bid GROUP BY channel, day"
    ),
    "q17": Reference(
        f"SELECT auction, date_time::DATE AS day, {_BIDS}, min(price) AS min_price, max(price) AS max_price, "
        "sum(price) / count(*) AS avg_price, sum(price)::BIGINT AS sum_price FROM bid GROUP BY auction, day",
        "SELECT * REPLACE (round(avg_price, 3) AS avg_price) FROM {0}",
    ),
    "q18": Reference(
        "SELECT DISTINCT ON (bidder, auction) * FROM bid ORDER BY bidder, auction, date_time DESC",
        "SELECT bidder, auction, date_time FROM {0}",
        among="SELECT * FROM bid",
    ),
    "q19": Reference(
        "SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid QUALIFY place < 11",
        "SELECT auction, price, place FROM {0}",
        "SELECT * EXCLUDE (place) FROM {0}",
        "SELECT * FROM bid",
    ),
    "q20": Reference(
        "SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra, "
        f"{_AUCTION_TEXTS} FROM auction a, bid b WHERE a.id = b.auction AND a.category = 10"
    ),
    "q21": Reference(
        "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' "
        "WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE string_split(url, 'channel_id=')[2] END AS channel_id "
        f"FROM bid WHERE lower(channel) IN {_HOT} OR contains(url, '&channel_id=')"
    ),
    "q22": Reference(
        "SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] AS dir2, "
        "string_split(url, '/')[6] AS dir3 FROM bid"
    ),
    "q23": Reference(
        "SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id AS person_id, p.name, p.email_address, "
        f"p.credit_card, p.city, p.state, p.extra AS person_extra, {_AUCTION_TEXTS} "
        "FROM person p, bid b, auction a WHERE b.bidder = p.id AND a.seller = p.id"
    ),
}


def over(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a database over the generator's files; close it at the end."""
    con = duckdb.connect()
    con.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
    for name in (*STREAMS, SIDE_INPUT):
        con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder / name}/*.parquet')")
    return con


def difference(con: duckdb.DuckDBPyConnection, name: str, found: pa.Table, columns: Sequence[str]) -> str | None:
    """Say how an engine's rows, or the sum of its changes, differ from the answer to a query; None if they do not.

    ``found`` has the query's columns in their order, under these names, and perhaps ``_tp_delta``.
    """
    reference = REFERENCES[name]
    con.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {reference.rows}")
    kinds = con.execute("DESCRIBE expected").fetchall()
    if [each[0] for each in kinds] != list(columns):
        return f"the columns are {', '.join(columns)}"
    cast = ", ".join(f'CAST("{column}" AS {kind}) AS "{column}"' for column, kind, *_ in kinds)
    count = f"CAST(sum({DELTA}) AS BIGINT)" if DELTA in found.column_names else "count(*)"
    con.register("found", found)
    summed = f"SELECT {cast}, {count} AS n FROM found GROUP BY {', '.join(map(str, range(1, len(kinds) + 1)))}"
    con.execute(f"CREATE OR REPLACE TEMP TABLE summed AS {summed}")
    con.unregister("found")
    if (gone := con.execute("SELECT count(*) FROM summed WHERE n < 0").fetchall()[0][0]) > 0:
        return f"{gone} rows were taken back more often than they came"
    con.execute("CREATE OR REPLACE TEMP TABLE result AS SELECT * EXCLUDE (n, i) FROM summed, range(n) AS t(i)")
    of_result, expected = (reference.compared.format(each) for each in ("result", "expected"))
    checks = [("too many", of_result, expected), ("missing", expected, of_result)]
    if reference.among:
        checks.append(("unknown", reference.of_these.format("result"), reference.among))
    for what, one, other in checks:
        rows = con.execute(f"SELECT * FROM ({one}) EXCEPT ALL SELECT * FROM ({other})").fetchall()
        if rows:
            return f"{len(rows)} rows are {what}, such as {rows[0]}"
    return None
