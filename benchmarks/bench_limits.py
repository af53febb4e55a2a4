"""Measures what it costs to evict rows, with the state at its limit in every step.

    python -m benchmarks.bench_limits [--rows N] [--batch N] [--steps N]

An inner join of two streams holds N rows in all: by a window, or without one by each policy, whose limit is the size of
that state.  Every step brings ``batch`` rows, and so evicts as many.  The keys are drawn from N / 10.  Runs the kernel
alone, without Spark, in one bucket; the first steps, which fill the state, are not timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.arguments import count
from watersmeet.columns import TIME
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import Frame, FrameKind, mark_frame, row_frames
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import EmitMode, JoinKind, Kernel, Side
from watersmeet.kernels.evicting.join import EvictingJoin
from watersmeet.kernels.evicting.limits import Limits, Policy
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets

_ROW_BYTES = 16 + 4 * 8  # event time, row id, key and value
OUTPUT = pa.schema([("l:k", pa.int64()), ("l:v", pa.int64()), ("r:v", pa.int64())])


def main() -> None:
    """Run all policies and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=1_000_000)
    arguments.add_argument("--batch", type=count, default=40_000)
    arguments.add_argument("--steps", type=count, default=20)
    options = arguments.parse_args()
    figures = {}
    print(f"{options.rows:,} rows held, {options.batch:,} in each step\n")
    print("| | rows/s | state rows | state | evicted |")
    print("|---|---|---|---|---|")
    for name, kernel in kernels(options.rows):
        rate, counters = run(kernel, options.rows, options.batch, options.steps)
        evicted = sum(value for counter, value in counters.items() if counter.startswith("evicted"))
        size = counters["state_bytes"]
        print(f"| {name} | {rate:,.0f} | {counters['state_rows']:,} | {size / 1e6:.1f} MB | {evicted:,} |")
        figures[name] = {"rows_per_second": rate, "state_rows": counters["state_rows"], "state_bytes": size}
    print(json.dumps(figures))


def kernels(rows: int) -> Iterator[tuple[str, Kernel]]:
    """The join with a window, and with limits."""
    yield "a window, nothing evicted", IntervalJoin(match(rows // 2), EmitMode.FINAL)
    unbounded = IntervalJoin(match(None), EmitMode.FINAL)
    for policy in (Policy.OLDEST, Policy.PRESSURE, Policy.LRU):
        yield policy.value, EvictingJoin(unbounded, Limits(policy, None, rows * _ROW_BYTES, ("l", "r")))
    yield "per_key", EvictingJoin(unbounded, Limits(Policy.PER_KEY, 5, rows * _ROW_BYTES, ("l", "r")))


def match(reach: int | None) -> WindowMatch:
    """Keys are equal, and times at most ``reach`` apart."""
    left, right = SideColumns(("l:k", "l:v"), ("l:k",)), SideColumns(("r:v",), ("r:k",))
    lower = None if reach is None else -reach
    return WindowMatch(JoinKind.INNER, left, right, (Key("l:k", "r:k"),), lower, reach)


def run(kernel: Kernel, rows: int, batch: int, steps: int) -> tuple[float, dict[str, int]]:
    """Return the rows a second once the state is full, and the last counters."""
    inputs = tuple(InputSpec(schema(side), side.alias, ("",)) for side in Side)
    limit = rows * _ROW_BYTES if isinstance(kernel, EvictingJoin) else None
    evicts = isinstance(kernel, EvictingJoin) and kernel.limits.policy.evicts_at_limit
    spec = OperatorSpec("join", kernel, inputs, (0,), "f", OUTPUT, max_state_bytes=limit, evicts_at_limit=evicts)
    store, working_set = MemoryStore(), WorkingSets(keyed_bytes=8 << 30).get("join")
    filling = 2 * rows // batch  # the policy per_key fills up more slowly
    sent: list[Frame] = []
    began = 0.0
    for step in range(filling + steps):
        if step == filling:
            began = time.monotonic()
        arriving = [frame for side in Side for frame in frames(side, step, rows // 10, batch // 2)]
        sent = [frame for frame in run_step(spec, 0, arriving, store, working_set) if frame.kind is FrameKind.COUNTER]
    seconds = time.monotonic() - began
    return steps * batch / seconds, {frame.part.removeprefix("join."): frame.frontier for frame in sent}


def frames(side: Side, step: int, keys: int, rows: int) -> Iterator[Frame]:
    """A step's rows of one side, in order of time, and its frontier."""
    random = np.random.default_rng(2 * step + side.index)
    times = np.arange(step * rows, (step + 1) * rows)
    table = pa.table([times, random.integers(0, keys, rows), times], schema=schema(side))
    yield from row_frames(table, bucket=0, input=side.index)
    yield mark_frame(0, side.index, "", int(times[-1]))


def schema(side: Side) -> pa.Schema:
    """The columns of a side's rows."""
    return pa.schema([(TIME, pa.int64()), (f"{side.alias}:k", pa.int64()), (f"{side.alias}:v", pa.int64())])


if __name__ == "__main__":
    main()
