"""Measures how fast a worker rebuilds the working set of a bucket, as after a restart or when Spark moves the bucket.

    python -m benchmarks.bench_rebuild [--rows N] [--times N]

Runs the kernel alone, without Spark.  The time to rebuild is the difference between the first step with an empty
working set and a step with a complete one.  Rebuilds from the state store (here in memory; Spark adds its own costs),
and from files left by another worker of the machine.  Every result is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable

from benchmarks.arguments import count
from benchmarks.filled import Filled, filled, new_working_set
from watersmeet.engine.bucket_step import run_step
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.working_set import WorkingSet


def main() -> None:
    """Fill the state, rebuild it repeatedly, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=5_000_000, help="rows of state")
    arguments.add_argument("--times", type=count, default=5)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copies = LocalCopies(folder, "join-0")
        state = filled(options.rows, copies)
        size = state.working_set.nbytes
        ways: list[tuple[Callable[[], WorkingSet], LocalCopies | None]]
        ways = [(lambda: state.working_set, None), (new_working_set, None), (new_working_set, copies)]
        held, stored, copied = (
            statistics.median(step(state, n * options.times + i, make(), source) for i in range(options.times))
            for n, (make, source) in enumerate(ways)
        )
    rates = {name: size / 1e6 / (seconds - held) for name, seconds in (("store", stored), ("files", copied))}
    print(f"{options.rows:,} rows of state, {size / 1e6:,.0f} MB\n")
    print("| rebuilt from | step | of this: rebuilding | MB/s |\n|---|---|---|---|")
    print(f"| (nothing to rebuild) | {held * 1000:,.0f} ms | | |")
    for name, seconds in (("store", stored), ("files", copied)):
        print(f"| {name} | {seconds * 1000:,.0f} ms | {(seconds - held) * 1000:,.0f} ms | {rates[name]:,.0f} |")
    print(json.dumps({"megabytes": size / 1e6, "megabytes_per_s": rates}))


def step(state: Filled, number: int, working_set: WorkingSet, copies: LocalCopies | None) -> float:
    """Return the seconds that one record takes."""
    key = int(state.keys[number])
    frames = state.frames(key, number)
    started = time.perf_counter()
    sent = list(run_step(state.spec, 0, frames, state.store, working_set, copies))
    seconds = time.perf_counter() - started
    state.check(sent, key, number)
    return seconds


if __name__ == "__main__":
    main()
