"""The ASOF kernel against nested loops: all directions, tolerances, residuals and NULL keys, in random batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reference import Row, asof_join
from watersmeet.columns import TIME
from watersmeet.engine.events import Event, EventKind
from watersmeet.engine.frames import Frame, FrameKind, decode_table, mark_frame, row_frames
from watersmeet.engine.host import process
from watersmeet.engine.spec import InputSpec, OperatorSpec
from watersmeet.kernels import asof
from watersmeet.kernels.asof import AsofJoin, Direction
from watersmeet.kernels.match import Key, SideColumns
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSets

DELAY = 3
LEFT = pa.schema([(TIME, pa.int64()), ("l:k", pa.int64()), ("l:v", pa.int64())])
RIGHT = pa.schema([(TIME, pa.int64()), ("r:k", pa.int64()), ("r:v", pa.int64()), ("r:$seq", pa.int64())])
OUTPUT = pa.schema([(name, pa.int64()) for name in ("l:$t", "l:v", "r:v", "r:$t")])
END = Frame(0, 0, "", FrameKind.CONTROL, 0, Event(EventKind.END).to_json())
JOIN = AsofJoin(
    left=SideColumns(("l:$t", "l:v"), ("l:k", "l:v"), "l:$t"),
    right=SideColumns(("r:v", "r:$t"), ("r:k", "r:v"), "r:$t"),
    keys=(Key("l:k", "r:k"),),
    direction=Direction.BACKWARD,
    sequence="r:$seq",
)
Name = Literal["backward", "forward", "nearest"]
Batch = list[tuple[str, int, int | None, int]]  # side, time behind the newest that may come, key, value


class Bench:
    """One bucket of the operator, fed batch by batch."""

    def __init__(self, join: AsofJoin) -> None:
        inputs = (InputSpec(LEFT, "l", ("",)), InputSpec(RIGHT, "r", ("",)))
        self.spec = OperatorSpec("asof", join, inputs, buckets=(0,), fingerprint="f", output=OUTPUT)
        self.store = MemoryStore()
        self.working_sets = WorkingSets(most_bytes=1 << 30)
        self.results: Counter[tuple[Any, ...]] = Counter()
        self.counters: dict[str, int] = {}

    def feed(self, frames: list[Frame]) -> None:
        for frame in process(self.spec, 0, frames, self.store, self.working_sets.get("asof")):
            if frame.kind is FrameKind.ROWS:
                self.results.update(tuple(row.values()) for row in decode_table(frame.payload).to_pylist())
            elif frame.kind is FrameKind.COUNTER:
                self.counters[frame.part.removeprefix("asof.")] = frame.frontier

    def rows(self, left: list[Row], right: list[Row], newest: int) -> None:
        """One batch, after which both frontiers stand at ``newest - DELAY``."""
        lefts = [{TIME: row["t"], "l:k": row["k"], "l:v": row["v"]} for row in left]
        rights = [{TIME: row["t"], "r:k": row["k"], "r:v": row["v"], "r:$seq": row["seq"]} for row in right]
        tables = (pa.Table.from_pylist(lefts, LEFT), pa.Table.from_pylist(rights, RIGHT))
        frames = [frame for i, table in enumerate(tables) for frame in row_frames(table, bucket=0, input=i)]
        self.feed([*frames, *(mark_frame(0, i, "", newest - DELAY) for i in (0, 1))])


@settings(max_examples=settings.default.max_examples // 4 if settings.default else 12)
@pytest.mark.parametrize("settles_at", [0, 4, asof._LEAST_SETTLED])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@given(
    strict=st.booleans(),
    tolerance=st.sampled_from([None, 0, 2, 5]),
    outer=st.booleans(),
    keyed=st.booleans(),
    null_safe=st.booleans(),
    tested=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.integers(0, 6),
            st.lists(
                st.tuples(st.sampled_from("lr"), st.integers(0, 6), st.sampled_from([1, 2, None]), st.integers(0, 4)),
                max_size=8,
            ),
            st.booleans(),
        ),
        max_size=10,
    ),
)
def test_every_row_meets_the_nearest_of_its_key(
    settles_at: int,
    direction: Name,
    strict: bool,
    tolerance: int | None,
    outer: bool,
    keyed: bool,
    null_safe: bool,
    tested: bool,
    steps: list[tuple[int, Batch, bool]],
) -> None:
    strict = strict and direction != "nearest"
    join = replace(
        JOIN,
        keys=(Key("l:k", "r:k", null_safe),) if keyed else (),
        direction=Direction(direction),
        strict=strict,
        tolerance=tolerance,
        outer=outer,
        residual='l."l:v" <= r."r:v"' if tested else None,
    )
    bench = Bench(join)
    left: list[Row] = []
    right: list[Row] = []
    newest = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asof, "_LEAST_SETTLED", settles_at)
        for passed, batch, restarts in steps:
            floor, newest = newest - DELAY, newest + passed
            lefts: list[Row] = []
            rights: list[Row] = []
            for side, ahead, key, value in batch:
                seen = len(right) + len(rights)
                row = {"t": min(floor + ahead, newest), "k": key, "v": value, "seq": seen}
                (lefts if side == "l" else rights).append(row)
            left += lefts
            right += rights
            bench.rows(lefts, rights, newest)
            if restarts:
                bench.working_sets.forget()
        bench.feed([END])
    pairs = asof_join(
        left,
        right,
        direction,
        on=[("k", "k")] if keyed else [],
        null_safe=null_safe,
        strict=strict,
        tolerance=tolerance,
        outer=outer,
        residual=(lambda l, r: l["v"] <= r["v"]) if tested else None,  # noqa: E741
    )
    expected = Counter((l["t"], l["v"], r and r["v"], r and r["t"]) for l, r in pairs if l is not None)  # noqa: E741
    assert bench.results == expected
    assert bench.counters.get("late.l", 0) == bench.counters.get("late.r", 0) == 0


def test_the_state_is_the_newest_version_of_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions below the frontier go, but for the newest of each key, which later rows must still meet (trap 21)."""
    monkeypatch.setattr(asof, "_LEAST_SETTLED", 50)
    bench = Bench(JOIN)
    for now in range(0, 1000, 10):
        bench.rows([], [{"t": now, "k": key, "v": now, "seq": now} for key in range(5)], now)
    assert bench.counters["state_rows"] < 5 + 50 + 10
    bench.rows([{"t": 1000, "k": 3, "v": 7, "seq": 0}], [], 1010)
    assert bench.results == {(1000, 7, 990, 990): 1}
    bench.rows([{"t": 1500, "k": 9, "v": 7, "seq": 0}], [], 1510)
    assert len(bench.results) == 1, "key 9 has no version"
