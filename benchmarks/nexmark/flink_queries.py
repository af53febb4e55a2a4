"""Nexmark's queries in Flink's SQL, from what they mean, with the columns of this project's.

Those that read alike in both are not here twice: their text is changed where the languages differ.
"""

from __future__ import annotations

import re

from benchmarks.nexmark import queries

#: What Flink cannot run, and why.
REFUSED = {
    "q6": "its OVER takes no corrections, and the winning prices are corrected",
    "q13": "its connector for files does not look rows up",
}
#: What has no results to compare at the end of the input, and why.
UNCHECKED = {"q12": "windows of the clock do not end with the input"}
#: Queries of which Flink sends the new row of each key, and not the one that it replaces.
UPDATED = {"q9": ("id",), "q18": ("auction", "bidder"), "q19": ("auction", "place")}

_DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"
_OWN = {
    "q10": (
        "SELECT auction, bidder, price, date_time, extra, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt, "
        "DATE_FORMAT(date_time, 'HH:mm') AS hm FROM bid"
    ),
    "q12": (
        "SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime FROM "
        "TABLE(TUMBLE(TABLE bid_arrival, DESCRIPTOR(arrival), INTERVAL '10' SECONDS)) "
        "GROUP BY bidder, window_start, window_end"
    ),
    "q14": (
        "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime' "
        "WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type, "
        "date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts "
        "FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"
    ),
    "q22": (
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, "
        "SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid"
    ),
}


def text(name: str) -> str:
    """The SELECT of a query in Flink's SQL."""
    if name in _OWN:
        return _OWN[name]
    found = queries.text(name).split("\nSETTINGS ")[0]
    found = re.sub(r"\bAS (day|minute|final)\b", r"AS `\1`", found)
    found = re.sub(r"\bavg\(final\)", "avg(`final`)", found)
    found = found.replace("CAST(date_time AS DATE)", _DAY).replace("AS STRING", "AS VARCHAR")
    found = re.sub(r"avg\((`?\w+`?)\)", r"avg(CAST(\1 AS DOUBLE))", found)
    return re.sub(r"(\w+) % (\d+)", r"MOD(\1, \2)", found)
