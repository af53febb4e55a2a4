"""Measures lookups of rows that a hybrid join has on disk, with and without the rows found last in memory.

    python -m benchmarks.bench_hybrid [--rows N] [--probes N] [--steps N] [--skew X] [--hot-part N]

An inner windowed join holds N rows of one side, of some 240 bytes; ``max_hot_bytes`` is a part of that.  Every step
brings rows of the other side, which are not kept; their keys are skewed by Zipf's law.  So the hot rows are found again
and again, and never rewritten.  The same steps run with all rows in memory, in hybrid mode with the rows written last
in memory, and with those found last too: first with all files in the system's page cache, then with none before each
step, as where other programs need the memory (Linux only).  Every pair is checked.  Runs the kernel alone, without
Spark, in one bucket.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.arguments import count
from watersmeet.columns import TIME
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import Frame, FrameKind, decode_table, mark_frame, row_frames
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import EmitMode, JoinKind
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.found_rows import FoundRows
from watersmeet.state.hot_bounds import HotBounds
from watersmeet.state.key_hashes import Numbers
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets

_TEXT_BYTES = 200
_ROW_BYTES = _TEXT_BYTES + 4 + 4 * 8  # its offset; event time, row id, key and id
_BATCHES = 20
_WINDOW = 1_000_000_000
_LEFT = pa.schema([(TIME, pa.int64()), ("l:k", pa.int64()), ("l:id", pa.int64())])
_RIGHT = pa.schema([(TIME, pa.int64()), ("r:k", pa.int64()), ("r:id", pa.int64()), ("r:text", pa.string())])
_OUTPUT = pa.schema([("l:id", pa.int64()), ("r:id", pa.int64()), ("r:text", pa.string())])


class Bucket:
    """A join whose state has a right row for each of ``rows`` keys; a row's id is the place of its key."""

    def __init__(self, rows: int, hot: HotBounds | None) -> None:
        sides = (SideColumns(("l:id",), ("l:k",)), SideColumns(("r:id", "r:text"), ("r:k",)))
        # left rows meet earlier right rows only, so none of them is kept
        match = WindowMatch(JoinKind.INNER, *sides, keys=(Key("l:k", "r:k"),), lower=-_WINDOW, upper=0)
        inputs = (InputSpec(_LEFT, "l", ("",)), InputSpec(_RIGHT, "r", ("",)))
        kernel = IntervalJoin(match, EmitMode.FINAL)
        self._spec = OperatorSpec("join", kernel, inputs, buckets=(0,), fingerprint="f", output=_OUTPUT, hot=hot)
        self._store, self._working_set = MemoryStore(), WorkingSets(keyed_bytes=8 << 30).get("join")
        self._now = rows
        self._keys = np.random.default_rng(1).permutation(rows)
        for ids in np.array_split(np.arange(rows), _BATCHES):
            text = pa.array([f"{id:0{_TEXT_BYTES}d}" for id in ids.tolist()])
            table = pa.table([ids, self._keys[ids], ids, text], schema=_RIGHT)
            list(run_step(self._spec, 0, row_frames(table, bucket=0, input=1), self._store, self._working_set))

    def step(self, ids: np.ndarray) -> tuple[float, float]:
        """Join left rows with the stored rows of these ids; return the milliseconds that it took, and those of CPU."""
        times = np.arange(self._now, self._now + len(ids))
        self._now += len(ids)
        rows = pa.table([times, self._keys[ids], ids], schema=_LEFT)
        marks = [mark_frame(0, side, "", self._now) for side in range(2)]
        frames = [*row_frames(rows, bucket=0, input=0), *marks]
        began, began_cpu = time.perf_counter(), time.process_time()
        sent = list(run_step(self._spec, 0, frames, self._store, self._working_set))
        taken = time.perf_counter() - began, time.process_time() - began_cpu
        _check(sent, len(ids))
        return 1000 * taken[0], 1000 * taken[1]


def main() -> None:
    """Run all ways and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=1_000_000)
    arguments.add_argument("--probes", type=count, default=2_000, help="rows of the other side in a step")
    arguments.add_argument("--steps", type=count, default=50, help="timed steps, after as many others")
    arguments.add_argument("--skew", type=float, default=1.1, help="the exponent of Zipf's law")
    arguments.add_argument("--hot-part", type=count, default=8, help="max_hot_bytes: one part of the state in so many")
    options = arguments.parse_args()
    hot = HotBounds(nbytes=options.rows * _ROW_BYTES // options.hot_part)
    print(f"{options.rows:,} rows, {options.rows * _ROW_BYTES / 1e6:.0f} MB; max_hot_bytes = {hot.nbytes:,}")
    print("| | from memory | median step | CPU | with an empty page cache |\n|---|---|---|---|---|")
    figures = {}
    for name, bounds, found in (
        ("in memory", None, False),
        ("hybrid, rows written last", hot, False),
        ("hybrid, rows written or found last", hot, True),
    ):
        with _counted(holds=found) as read:
            bucket = Bucket(options.rows, bounds)
            steps = _skewed_ids(options.rows, options.skew, (3, options.steps, options.probes))
            for ids in steps[0]:
                bucket.step(ids)
            read.clear()
            warm = [bucket.step(ids) for ids in steps[1]]
            share = 1 - sum(read) / sum(len(np.unique(ids)) for ids in steps[1])
            cold = [bucket.step(ids) for ids in _after_each_drop(steps[2])]
        (step, cpu), (cold_step, _) = (map(statistics.median, zip(*each, strict=True)) for each in (warm, cold))
        figures[name] = {"share": share, "ms": step, "cpu_ms": cpu, "cold_ms": cold_step}
        line = "| {} | {share:.0%} | {ms:.1f} ms | {cpu_ms:.1f} ms | {cold_ms:.1f} ms |"
        print(line.format(name, **figures[name]), flush=True)
    print(json.dumps(figures))


def _skewed_ids(rows: int, skew: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return random ids; each is chosen in proportion to ``rank ** -skew``, and the ranks of ids are random."""
    chance = np.random.default_rng(7)
    chances = np.cumsum(np.arange(1, rows + 1) ** -skew)
    ids: np.ndarray = chance.permutation(rows)[np.searchsorted(chances, chance.random(shape) * chances[-1])]
    return ids


def _after_each_drop(steps: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the steps, each after the system has dropped what it holds of files without a name."""
    for ids in steps:
        for link in Path("/proc/self/fd").iterdir():
            if link.exists() and link.readlink().name.endswith("(deleted)"):
                os.fsync(int(link.name))
                os.posix_fadvise(int(link.name), 0, 0, os.POSIX_FADV_DONTNEED)
        yield ids


@contextmanager
def _counted(*, holds: bool) -> Iterator[list[int]]:
    """Yield the numbers of rows that lookups read from files; ``holds`` says whether rows found last are held."""
    read: list[int] = []
    find, limit = FoundRows.find, FoundRows.limit

    def counting(self: FoundRows, owner: str, places: Numbers) -> tuple[list[pa.Table], Numbers]:
        tables, others = find(self, owner, places)
        read.append(len(others))
        return tables, others

    FoundRows.find = counting  # type: ignore[method-assign]
    if not holds:
        FoundRows.limit = lambda *_: None  # type: ignore[method-assign]
    try:
        yield read
    finally:
        FoundRows.find, FoundRows.limit = find, limit  # type: ignore[method-assign]


def _check(sent: Iterable[Frame], rows: int) -> None:
    """End the program unless each row has exactly its one pair."""
    found = pa.concat_tables([decode_table(each.payload) for each in sent if each.kind is FrameKind.ROWS])
    is_right = pc.and_(
        pc.equal(found["l:id"], found["r:id"]), pc.equal(found["r:text"].cast(pa.int64()), found["r:id"])
    )
    if found.num_rows != rows or not pc.all(is_right).as_py():
        raise SystemExit("unexpected pairs")


if __name__ == "__main__":
    main()
