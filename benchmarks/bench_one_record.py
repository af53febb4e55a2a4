"""How long one record takes through the kernel of the inner windowed join, beside a million rows of state.

    python benchmarks/bench_one_record.py [--rows N] [--records N]

The kernel alone, without Spark, in one bucket: what a record costs from frame to frame, the state logged.  Every result
is checked.  On Spark a micro-batch has a floor of its own, some hundred milliseconds, whatever it does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.engine.frames import FrameKind, decode_table, mark_frame, row_frames
from watersmeet.engine.host import process
from watersmeet.engine.spec import InputSpec, OperatorSpec
from watersmeet.kernels.api import EmitMode, JoinKind
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSets

_WINDOW = 1_000_000_000
_OUTPUT = pa.schema([("l:id", pa.int64()), ("r:id", pa.int64())])


def schema(side: str) -> pa.Schema:
    """What rows of a side bring."""
    return pa.schema([(TIME, pa.int64()), (f"{side}:k", pa.int64()), (f"{side}:id", pa.int64())])


def main() -> None:
    """Fill the state, feed single records, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=1_000_000, help="rows of state")
    arguments.add_argument("--records", type=int, default=1_000)
    options = arguments.parse_args()
    sides = (SideColumns(("l:id",), ("l:k",)), SideColumns(("r:id",), ("r:k",)))
    match = WindowMatch(JoinKind.INNER, *sides, keys=(Key("l:k", "r:k"),), lower=-_WINDOW, upper=_WINDOW)
    inputs = tuple(InputSpec(schema(side), side, ("",)) for side in "lr")
    kernel = IntervalJoin(match, EmitMode.FINAL)
    spec = OperatorSpec("join", kernel, inputs, buckets=(0,), fingerprint="f", output=_OUTPUT)
    store, working_set = MemoryStore(), WorkingSets(most_bytes=8 << 30).get("join")
    chance = np.random.default_rng(1)
    known = chance.permutation(options.rows)
    step = options.rows // 10
    for first in range(0, options.rows, step):
        places = np.arange(first, first + step)
        rows = pa.table([places, known[places], places], schema=schema("r"))
        process(spec, 0, row_frames(rows, bucket=0, input=1), store, working_set)
    millis = []
    for number in range(options.records):
        key = int(chance.integers(0, options.rows))
        now = options.rows + number
        record = pa.table([[now], [key], [number]], schema=schema("l"))
        started = time.perf_counter()
        frames = [*row_frames(record, bucket=0, input=0), mark_frame(0, 0, "", now), mark_frame(0, 1, "", now)]
        sent = process(spec, 0, frames, store, working_set)
        millis.append((time.perf_counter() - started) * 1000)
        found = [row for f in sent if f.kind is FrameKind.ROWS for row in decode_table(f.payload).to_pylist()]
        if found != [{"l:id": number, "r:id": int(np.flatnonzero(known == key)[0])}]:
            raise SystemExit(f"record {number} gave {found}")
    ordered = sorted(millis)
    p95, longest = ordered[round(0.95 * len(ordered)) - 1], ordered[-1]
    print(f"one record, {options.rows:,} rows of state, {options.records:,} records\n")
    print("| median | p95 | longest |\n|---|---|---|")
    print(f"| {statistics.median(millis):.1f} ms | {p95:.1f} ms | {longest:.1f} ms |")
    print(json.dumps({"median_ms": statistics.median(millis), "p95_ms": p95, "longest_ms": longest}))


if __name__ == "__main__":
    main()
