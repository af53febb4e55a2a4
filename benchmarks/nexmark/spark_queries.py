"""Nexmark's queries for Spark Structured Streaming, and why it cannot run the others.

Over views of the streams' DataFrames; in Spark's SQL, which reads most of this project's texts as they are.
"""

from __future__ import annotations

from benchmarks.nexmark import queries

_RANK = "a rank over a stream is not supported"
#: What Spark cannot run, and why.
REFUSED = {
    "q4": "aggregates over an aggregate without windows are not supported",
    "q6": _RANK,
    "q9": _RANK,
    "q15": "count(DISTINCT …) over a stream is not supported",
    "q16": "count(DISTINCT …) over a stream is not supported",
    "q19": _RANK,
}
#: Queries in update mode, which sends the new row of each group, with the columns that name a group.
UPDATED = {
    "q12": ("bidder", "starttime"),
    "q17": ("auction", "day"),
    "q18": ("auction", "bidder"),
}
#: Queries that close windows, which Spark does not do at the end of its input.
WINDOWED = ("q5", "q7", "q8", "q11")

_TEN = "window(date_time, '10 seconds')"
_SELLERS = f"SELECT seller, {_TEN} AS w FROM auction GROUP BY seller, {_TEN}"
_OWN = {
    "q5": (
        "WITH counted AS (SELECT auction, count(*) AS num, window(date_time, '10 seconds', '2 seconds') AS w "
        "FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')), "
        "most AS (SELECT max(num) AS maxn, w FROM counted GROUP BY w) "
        "SELECT c.auction, c.num FROM counted c JOIN most m ON c.w = m.w AND c.num >= m.maxn"
    ),
    "q7": (
        "SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b JOIN ("
        f"SELECT max(price) AS maxprice, {_TEN} AS w FROM bid GROUP BY {_TEN}) m "
        "ON b.price = m.maxprice AND b.date_time BETWEEN m.w.end - INTERVAL 10 SECONDS AND m.w.end"
    ),
    "q8": (
        f"SELECT p.id, p.name, p.w.start AS stime FROM (SELECT id, name, {_TEN} AS w FROM person "
        f"GROUP BY id, name, {_TEN}) p JOIN ({_SELLERS}) a ON p.id = a.seller AND p.w = a.w"
    ),
    "q11": (
        "SELECT bidder, count(*) AS bid_count, s.start AS starttime, s.end AS endtime FROM "
        "(SELECT bidder, session_window(date_time, '10 seconds') AS s FROM bid) GROUP BY bidder, s"
    ),
    "q12": (
        "SELECT bidder, count(*) AS bid_count, w.start AS starttime, w.end AS endtime FROM "
        "(SELECT bidder, window(current_timestamp(), '10 seconds') AS w FROM bid) GROUP BY bidder, w"
    ),
    "q13": queries.text("q13").replace(" FOR SYSTEM_TIME AS OF PROCTIME()", ""),
    "q18": (
        "SELECT last.* FROM (SELECT max_by(struct(auction, bidder, price, channel, url, date_time, extra), date_time) "
        "AS last FROM bid GROUP BY bidder, auction)"
    ),
}


def text(name: str) -> str:
    """The SELECT of a query in Spark's SQL."""
    return _OWN[name] if name in _OWN else queries.text(name).split("\nSETTINGS ")[0]
