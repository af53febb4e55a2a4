"""Runs ten joins of the same streams at once in one session, each with a window of its own, as a process of its own.

    python -m benchmarks.concurrent_joins ROWS FOLDER

The last line printed is JSON: how many joins there are, how many of them gave as many pairs as a batch query in DuckDB,
and source rows a second over all of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import duckdb

from benchmarks.engines import SETTINGS
from benchmarks.streams import Data, write_streams

JOINS = 10
_FILES = 10
_PATIENCE_SECONDS = 600


def main() -> None:
    """Run the joins and print their figures."""
    import watersmeet
    from watersmeet import QueryMode

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("rows", type=int)
    arguments.add_argument("folder", type=Path)
    options = arguments.parse_args()
    data = Data(options.rows, _FILES, keys=1000)
    streams = write_streams(options.folder, data)
    with tempfile.TemporaryDirectory() as workspace:
        session = watersmeet.connect(workspace=workspace, master="local[2]", config=SETTINGS)
        for side in data.sides:
            session.sql(
                f"CREATE STREAM {side} ({data.columns(side)}, WATERMARK FOR {side}_ts AS {side}_ts - INTERVAL '1' "
                f"SECOND) WITH (connector = 'files', format = 'parquet', path = '{streams / side}', "
                "max_files_per_trigger = '2')"
            )
        text = "CREATE STREAM nothing WITH (connector = 'blackhole');" + "".join(
            f"INSERT INTO nothing SELECT l_id, r_id FROM l JOIN r ON l_key = r_key WITHIN INTERVAL '{seconds}' SECONDS;"
            for seconds in range(1, JOINS + 1)
        )
        began = time.monotonic()
        queries = [each.query for each in session.run(text, QueryMode.DRAIN) if hasattr(each, "query")]
        for query in queries:
            query.wait(_PATIENCE_SECONDS)
        seconds = time.monotonic() - began
        found = [query.report().rows_out for query in queries]
        session.spark.stop()
    right = sum(a == b for a, b in zip(found, _expected(streams), strict=True))
    rate = round(JOINS * len(data.sides) * data.rows / seconds)
    print(json.dumps({"joins": JOINS, "right": right, "rows_per_s": rate, "seconds": seconds}))


def _expected(streams: Path) -> list[int]:
    """The numbers of pairs, by a batch query for each window."""
    with duckdb.connect() as con:
        con.execute("SET enable_progress_bar = false")
        for side in "lr":
            con.execute(f"CREATE TABLE {side} AS SELECT * FROM read_parquet('{streams / side}/*.parquet')")
        near = "abs(epoch_us(l_ts) - epoch_us(r_ts)) <= {} * 1000000"
        return [
            con.execute(f"SELECT count(*) FROM l JOIN r ON l_key = r_key AND {near.format(seconds)}").fetchall()[0][0]
            for seconds in range(1, JOINS + 1)
        ]


if __name__ == "__main__":
    main()
