"""Measures the time of one record in the kernel of the inner windowed join, with a million rows of state.

    python -m benchmarks.bench_one_record [--rows N] [--records N]

Runs the kernel alone, without Spark, in one bucket, and measures from frame to frame, with the state logged.  Every
result is checked.  On Spark every micro-batch takes at least some hundred milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

from benchmarks.arguments import count
from benchmarks.figures import p95
from benchmarks.filled import filled
from watersmeet.engine.bucket_step import run_step


def main() -> None:
    """Fill the state, feed single records, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=1_000_000, help="rows of state")
    arguments.add_argument("--records", type=count, default=1_000)
    options = arguments.parse_args()
    state = filled(options.rows)
    chance = np.random.default_rng(2)
    millis = []
    for number in range(options.records):
        key = int(chance.integers(0, options.rows))
        started = time.perf_counter()
        sent = list(run_step(state.spec, 0, state.frames(key, number), state.store, state.working_set))
        millis.append((time.perf_counter() - started) * 1000)
        state.check(sent, key, number)
    figures = {"median_ms": statistics.median(millis), "p95_ms": p95(millis), "longest_ms": max(millis)}
    print(f"one record, {options.rows:,} rows of state, {options.records:,} records\n")
    print("| median | p95 | longest |\n|---|---|---|")
    print("| {median_ms:.1f} ms | {p95_ms:.1f} ms | {longest_ms:.1f} ms |".format(**figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
