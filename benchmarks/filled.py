"""A bucket of an inner windowed join with one side's rows in its state, for benchmarks of the kernel alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import Frame, FrameKind, decode_table, mark_frame, row_frames
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import EmitMode, JoinKind
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSet
from watersmeet.state.working_sets import WorkingSets

_WINDOW = 1_000_000_000
_OUTPUT = pa.schema([("l:id", pa.int64()), ("r:id", pa.int64())])
_BATCHES = 10


@dataclass(frozen=True, slots=True)
class Filled:
    """A bucket whose state has a right row for each of ``keys``; the row's id is the index of the key."""

    spec: OperatorSpec
    store: MemoryStore
    working_set: WorkingSet
    keys: np.ndarray

    def frames(self, key: int, number: int) -> list[Frame]:
        """Return a left row of the key, later than all before, and the marks that advance both frontiers to it."""
        now = len(self.keys) + number
        record = pa.table([[now], [key], [number]], schema=_schema("l"))
        return [*row_frames(record, bucket=0, input=0), mark_frame(0, 0, "", now), mark_frame(0, 1, "", now)]

    def check(self, sent: Iterable[Frame], key: int, number: int) -> None:
        """End the program unless the frames sent for the row have exactly its one pair."""
        found = [row for f in sent if f.kind is FrameKind.ROWS for row in decode_table(f.payload).to_pylist()]
        if found != [{"l:id": number, "r:id": int(np.flatnonzero(self.keys == key)[0])}]:
            raise SystemExit(f"record {number}: unexpected results {found}")


def filled(rows: int, local_copies: LocalCopies | None = None) -> Filled:
    """Return a bucket with ``rows`` rows of state, stored in ten batches, each with a key of its own."""
    sides = (SideColumns(("l:id",), ("l:k",)), SideColumns(("r:id",), ("r:k",)))
    match = WindowMatch(JoinKind.INNER, *sides, keys=(Key("l:k", "r:k"),), lower=-_WINDOW, upper=_WINDOW)
    inputs = tuple(InputSpec(_schema(side), side, ("",)) for side in "lr")
    kernel = IntervalJoin(match, EmitMode.FINAL)
    spec = OperatorSpec("join", kernel, inputs, buckets=(0,), fingerprint="f", output=_OUTPUT)
    store, working_set = MemoryStore(), new_working_set()
    keys = np.random.default_rng(1).permutation(rows)
    for places in np.array_split(np.arange(rows), _BATCHES):
        table = pa.table([places, keys[places], places], schema=_schema("r"))
        list(run_step(spec, 0, row_frames(table, bucket=0, input=1), store, working_set, local_copies))
    return Filled(spec, store, working_set, keys)


def new_working_set() -> WorkingSet:
    """Return an empty working set, like that of a worker new to the bucket."""
    return WorkingSets(keyed_bytes=8 << 30).get("join")


def _schema(side: str) -> pa.Schema:
    return pa.schema([(TIME, pa.int64()), (f"{side}:k", pa.int64()), (f"{side}:id", pa.int64())])
