"""Nexmark's streams as Parquet files, the same for every engine.

``person``, ``auction`` and ``bid`` are folders with as many files each; file N of all three has the rows of the same
events, so batches of one file a stream are consistent.  ``side_input`` is the table of query 13.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.events import BLOCK, STREAMS, Events, Numbers

SIDE_INPUT = "side_input"
SIDE_ROWS = 10_000
_MODIFIED = 1_700_000_000


def write_files(below: Path, events: Events, files: int) -> Path:
    """Write the streams and return their folder; files that are there are kept."""
    folder = below / name_of(events, files)
    done = folder / "done"
    if done.exists():
        return folder
    for name in (*STREAMS, SIDE_INPUT):
        (folder / name).mkdir(parents=True, exist_ok=True)
    side = {"key": pa.array(range(SIDE_ROWS), pa.int64()), "value": pa.array(map(str, range(SIDE_ROWS)), pa.string())}
    pq.write_table(pa.table(side), folder / SIDE_INPUT / "part-00000.parquet")
    for number, tables in enumerate(in_portions(events, files)):
        for stream, table in tables.items():
            path = folder / stream / f"part-{number:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (_MODIFIED + number, _MODIFIED + number))  # Spark reads files in this order
    done.touch()
    return folder


def name_of(events: Events, files: int) -> str:
    """A folder name that is unique to these files."""
    variant = "disordered" if events.disordered else "ordered"
    return f"nexmark-{events.count}-{events.seed}-{variant}-{events.rate:g}-{events.start:%Y%m%dT%H%M%S}-{files}"


def in_portions(events: Events, portions: int) -> Iterator[dict[str, pa.Table]]:
    """Yield the rows of so many portions of the events, of equal size but for the last, by stream."""
    block = lru_cache(maxsize=1)(events.block)
    size = -(-events.count // portions)
    for first in range(0, events.count, size):
        end = min(first + size, events.count)
        blocks = [block(number) for number in range(first // BLOCK, -(-end // BLOCK))]
        yield {stream: pa.concat_tables([_cut(*each[stream], first, end) for each in blocks]) for stream in STREAMS}


def _cut(places: Numbers, rows: pa.Table, first: int, end: int) -> pa.Table:
    """The rows whose places are in a range."""
    begin, stop = places.searchsorted([first, end])
    return rows.slice(begin, stop - begin)
