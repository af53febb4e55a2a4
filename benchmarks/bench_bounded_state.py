"""Measures how the state of a join of two changing streams grows when the same keys are updated repeatedly.

    python -m benchmarks.bench_bounded_state [--keys N] [--rounds N]

Each round updates every key of both sides, in random order.  The inner join emits corrections: the old pair of each key
with -1, its new pair with +1; every round is checked.  Runs the kernel alone, without Spark, in one bucket.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from benchmarks.arguments import count
from benchmarks.memory import resident
from watersmeet.columns import TIME, WEIGHT
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import Frame, FrameKind, decode_table, row_frames
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import JoinKind, Side
from watersmeet.kernels.changelog.join import ChangelogJoin
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets

_SHOWN = (1, 2, 10, 50, 100)
OUTPUT = pa.schema([("l:k", pa.int64()), ("l:v", pa.int64()), ("r:v", pa.int64()), (WEIGHT, pa.int8())])
KERNEL = ChangelogJoin(
    WindowMatch(
        kind=JoinKind.INNER,
        left=SideColumns(("l:k", "l:v"), ("l:k",)),
        right=SideColumns(("r:v",), ("r:k",)),
        keys=(Key("l:k", "r:k"),),
        lower=None,
        upper=None,
    ),
    (
        Newest(("l:k",), "l:$seq", "l:d", None, "l"),
        Newest(("r:k",), "r:$seq", "r:d", None, "r"),
    ),
)


def schema(side: str) -> pa.Schema:
    """Return the schema of a side's rows."""
    names = (f"{side}:k", f"{side}:v", f"{side}:$seq")
    return pa.schema([(TIME, pa.int64()), *((name, pa.int64()) for name in names), (f"{side}:d", pa.int8())])


def updates(side: Side, keys: int, number: int) -> pa.Table:
    """Return a new value for every key, in random order."""
    random = np.random.default_rng(2 * number + side.index)
    places = np.arange(number * keys, (number + 1) * keys)
    value = np.full(keys, number)
    return pa.table(
        [places, random.permutation(keys), value, places, np.ones(keys, np.int8)], schema=schema(side.alias)
    )


def main() -> None:
    """Run all rounds and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--keys", type=count, default=100_000)
    arguments.add_argument("--rounds", type=count, default=100)
    options = arguments.parse_args()
    inputs = tuple(InputSpec(schema(side.alias), side.alias, ("",), lag=None) for side in Side)
    spec = OperatorSpec("join", KERNEL, inputs, buckets=(0,), fingerprint="f", output=OUTPUT)
    store, working_set = MemoryStore(), WorkingSets(keyed_bytes=8 << 30).get("join")
    print(f"{options.keys:,} keys per side, each updated in every round\n")
    print("| after round | state rows | segments | state | memory of the process | seconds per round |")
    print("|---|---|---|---|---|---|")
    figures = {}
    for number in range(options.rounds):
        started = time.monotonic()
        arriving = [
            f for side in Side for f in row_frames(updates(side, options.keys, number), bucket=0, input=side.index)
        ]
        sent = list(run_step(spec, 0, arriving, store, working_set))
        check(sent, options.keys, number)
        if number + 1 in _SHOWN:
            counters = {
                frame.part.removeprefix("join."): frame.frontier for frame in sent if frame.kind is FrameKind.COUNTER
            }
            memory = resident(os.getpid())
            seconds = time.monotonic() - started
            state = counters["state_rows"], counters["segments"], counters["state_bytes"]
            figures[number + 1] = (*state, memory)
            print(
                f"| {number + 1} | {state[0]:,} | {state[1]} | {state[2] / 1e6:.1f} MB | {memory / 1e6:.0f} MB | "
                f"{seconds:.2f} |"
            )
    print(json.dumps({"rounds": figures, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def check(sent: Iterable[Frame], keys: int, number: int) -> None:
    """End the program unless the round retracted each key's former pair and inserted the new one."""
    tables = [decode_table(frame.payload) for frame in sent if frame.kind is FrameKind.ROWS]
    rows = pa.concat_tables(tables).to_pydict()
    inserted = sorted(key for key, weight in zip(rows["l:k"], rows[WEIGHT], strict=True) if weight > 0)
    retracted = sorted(key for key, weight in zip(rows["l:k"], rows[WEIGHT], strict=True) if weight < 0)
    values = {(left, right, w) for left, right, w in zip(rows["l:v"], rows["r:v"], rows[WEIGHT], strict=True)}
    expected = {(number, number, 1)} | ({(number - 1, number - 1, -1)} if number else set())
    everything = list(range(keys))
    if inserted != everything or retracted != (everything if number else []) or values != expected:
        raise SystemExit(f"round {number + 1} emitted wrong changes")


if __name__ == "__main__":
    main()
