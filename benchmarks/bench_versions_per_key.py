"""Measures a temporal join for keys with few or many versions, with the kernel alone, without Spark.

    python -m benchmarks.bench_versions_per_key [--rows N] [--batches N]

All runs store the same number of versions: 10, 1,000 or 100,000 per key.  Batches of 1,000 events with random keys and
times are joined at once with the valid version.  Every result is checked: a key has a version every 1,000 units of
time, so the matching one has the last multiple at or before the event's time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import pyarrow as pa

from benchmarks.arguments import count
from watersmeet.columns import TIME
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import FrameKind, decode_table, mark_frame, row_frames
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.kernels.asof.match import AsofMatch, Direction, Versions
from watersmeet.kernels.match import Key, SideColumns
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets

BATCH = 1_000
SPACING = 1_000
LEFT = pa.schema([(TIME, pa.int64()), ("l:k", pa.int64())])
RIGHT = pa.schema([(TIME, pa.int64()), ("r:k", pa.int64()), ("r:v", pa.float64()), ("r:$seq", pa.int64())])
OUTPUT = pa.schema([("l:$t", pa.int64()), ("r:$t", pa.int64()), ("r:v", pa.float64())])
KERNEL = AsofAtOnce(
    AsofMatch(
        left=SideColumns(("l:$t",), ("l:k",), "l:$t"),
        right=SideColumns(("r:$t", "r:v"), ("r:k",), "r:$t"),
        keys=(Key("l:k", "r:k"),),
        versions=Versions(("r:k",), "r:$seq"),
        direction=Direction.BACKWARD,
    )
)


def main() -> None:
    """Run all three and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=1_000_000, help="stored versions")
    arguments.add_argument("--batches", type=count, default=20, help="batches that are timed")
    options = arguments.parse_args()
    figures = {versions: measure(options.rows, versions, options.batches) for versions in (10, 1_000, 100_000)}
    print(f"{options.rows:,} stored versions, batches of {BATCH:,} events, kernel alone")
    print("| versions per key | median batch | time per event | against 10 |")
    print("|---|---|---|---|")
    for versions, seconds in figures.items():
        ratio = seconds / figures[10]
        print(f"| {versions:,} | {seconds * 1e3:.1f} ms | {seconds / BATCH * 1e6:.1f} us | {ratio:.2f} |")
    print(json.dumps({"batch_seconds": figures, "ratio": figures[100_000] / figures[10]}))


def measure(rows: int, versions: int, batches: int) -> float:
    """Return the seconds of the median batch, with ``versions`` versions per key."""
    keys = rows // versions
    inputs = (InputSpec(LEFT, "l", ("",)), InputSpec(RIGHT, "r", ("",), holds_back=False))
    spec = OperatorSpec("join", KERNEL, inputs, buckets=(0,), fingerprint="f", output=OUTPUT)
    store, working_set = MemoryStore(), WorkingSets(keyed_bytes=8 << 30).get("join")
    random = np.random.default_rng(7)
    order = random.permutation(rows)
    for part in np.array_split(order, 20):  # in batches, as in a running query
        table = pa.table([part // keys * SPACING, part % keys, part.astype(float), part], schema=RIGHT)
        list(run_step(spec, 0, row_frames(table, bucket=0, input=1), store, working_set))
    seconds = []
    for _ in range(batches):
        times = random.integers(0, versions * SPACING, BATCH)
        events = pa.table([times, random.integers(0, keys, BATCH)], schema=LEFT)
        frames = [*row_frames(events, bucket=0, input=0), mark_frame(0, 0, "", 0)]
        started = time.perf_counter()
        sent = list(run_step(spec, 0, frames, store, working_set))
        seconds.append(time.perf_counter() - started)
        found = pa.concat_tables(decode_table(frame.payload) for frame in sent if frame.kind is FrameKind.ROWS)
        met = found["r:$t"].to_numpy()
        assert found.num_rows == BATCH
        assert (met == found["l:$t"].to_numpy() // SPACING * SPACING).all()
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
