"""Measures what a process keeps of many small hash joins in DuckDB, without anything of this project.

    python -m benchmarks.bench_duckdb_joins [--joins N]

Two tables of 300 rows are joined N times, in one database with one thread.  The process's resident size is printed ten
times on the way, then after the database was closed, and after the C library has given back what is free.  Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.arguments import count


def main() -> None:
    """Join, and print a line for each figure."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--joins", type=count, default=40_000)
    joins = arguments.parse_args().joins
    rows = list(range(300))
    left, right = (pa.table({"k": rows, name: rows}) for name in "ab")
    connection = duckdb.connect(config={"threads": 1})
    print(f"before: {_resident_mb():.0f} MB")
    for done in range(joins // 10, joins + 1, max(joins // 10, 1)):
        for _ in range(joins // 10):
            connection.register("l", left)
            connection.register("r", right)
            connection.sql("SELECT l.k, a, b FROM l JOIN r ON l.k = r.k").to_arrow_table()
            connection.unregister("l")
            connection.unregister("r")
        print(f"{done:,} joins: {_resident_mb():.0f} MB")
    connection.close()
    gc.collect()
    print(f"closed: {_resident_mb():.0f} MB")
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    print(f"given back: {_resident_mb():.0f} MB")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
