"""Of which streams a query needs no more than the newest rows."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.plan.newest_rows import read_by_newest_row
from watersmeet.testing.script import load_script

STREAMS = """
CREATE STREAM Orders (id INT, cur STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM rates (cur STRING, rate INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (cur)
  SETTINGS mode = 'versioned_kv';
CREATE STREAM Names (cur STRING, name STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (cur)
  SETTINGS mode = 'changelog_kv';
"""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT cur, rate FROM rates", {"rates"}),
        ("SELECT name, count(*) AS n FROM Names GROUP BY name", {"names"}),
        (
            "SELECT o.id, n.name FROM Orders o JOIN rates r ON o.cur = r.cur LEFT JOIN Names n ON n.cur = r.cur",
            {"rates", "names"},
        ),
        ("SELECT r.rate FROM rates r FULL JOIN Names n ON r.rate = length(n.name)", {"rates", "names"}),
        ("SELECT r.cur FROM rates r WHERE EXISTS (SELECT 1 FROM Names n WHERE n.cur = r.cur)", {"rates", "names"}),
        # older versions matter
        ("SELECT o.id, r.rate FROM Orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts r ON o.cur = r.cur", set()),
        ("SELECT o.id, n.name FROM Orders o ASOF JOIN Names n MATCH_CONDITION (o.ts >= n.ts) ON o.cur = n.cur", set()),
        # a stream is read once, for both of its uses
        (
            (
                "SELECT o.id FROM Orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts r ON o.cur = r.cur "
                "JOIN rates now ON o.cur = now.cur JOIN Names n ON o.cur = n.cur"
            ),
            {"names"},
        ),
        # another row is the newest
        ("SELECT cur, rate FROM rates SETTINGS max_future = '1 hour'", set()),
        ("SELECT id FROM Orders", set()),
    ],
)
def test_streams_read_by_their_newest_rows(query: str, expected: set[str]) -> None:
    streams, parsed = load_script(f"{STREAMS}{query};")
    assert read_by_newest_row(plan_query(parsed, streams)) == expected
