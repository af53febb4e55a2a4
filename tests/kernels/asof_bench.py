"""One bucket of a join as of a time, fed batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.support.reference import Row
from watersmeet.columns import ID, TIME, WEIGHT
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.frames import Frame, FrameKind, counters_in, decode_table, mark_frame, row_frames
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import Kernel
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.match import AsofMatch, Direction, Versions
from watersmeet.kernels.match import Key, SideColumns
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets

DELAY = 3
END = Frame(0, 0, "", FrameKind.CONTROL, 0, Event(EventKind.END).to_json())
OUTPUT = pa.schema([(name, pa.int64()) for name in ("l:$t", "l:v", "r:v", "r:$t")])
_LEFT = pa.schema([(TIME, pa.int64()), ("l:k", pa.int64()), ("l:v", pa.int64())])
_CHANGING = _LEFT.append(pa.field(WEIGHT, pa.int8())).append(pa.field(ID, pa.string()))
_RIGHT = pa.schema([(TIME, pa.int64()), *((f"r:{name}", pa.int64()) for name in ("k", "v", "$seq", "pk", "w"))])
#: side, time ahead of what may still come, key, value, primary key, whether it is a -1
Given = tuple[str, int, int | None, int, int, bool]
#: by how much the newest time advances, the rows, whether the bucket moves to another process
Steps = list[tuple[int, list[Given], bool]]
#: The join by k of left rows with the newest right row; tests replace parts of it.
MATCH = AsofMatch(
    left=SideColumns(("l:$t", "l:v"), ("l:k", "l:v"), "l:$t"),
    right=SideColumns(("r:v", "r:$t"), ("r:k", "r:v"), "r:$t"),
    keys=(Key("l:k", "r:k"),),
    versions=Versions(("r:k",), "r:$seq"),
    direction=Direction.BACKWARD,
)


class AsofBench:
    """Left rows have t, k and v (a changing stream: also w and id), right rows t, k, v and seq (and pk and w)."""

    def __init__(
        self, kernel: Kernel, *, waits: bool = True, retention: int | None = 0, in_order: bool = False
    ) -> None:
        self.left_changes = isinstance(kernel, AsofChangelog) and kernel.left_changes
        left = _CHANGING if self.left_changes else _LEFT
        self.schemas = (left, _RIGHT)
        output = OUTPUT
        if isinstance(kernel, AsofChangelog):
            output = output.append(pa.field(WEIGHT, pa.int8()))
            if kernel.gives_ids:
                output = output.append(pa.field(ID, pa.string()))
        right = InputSpec(_RIGHT, "r", ("",), holds_back=waits, retention=retention, late_by_own=in_order)
        inputs = (InputSpec(left, "l", ("",)), right)
        self.spec = OperatorSpec("asof", kernel, inputs, buckets=(0,), fingerprint="f", output=output)
        self.store = MemoryStore()
        self.working_sets = WorkingSets(keyed_bytes=1 << 30)
        self.results: Counter[tuple[Any, ...]] = Counter()
        self.ids: dict[str, tuple[Any, ...]] = {}
        self.counters: dict[str, int] = {}

    def feed(self, frames: list[Frame]) -> None:
        """One batch of frames."""
        for frame in run_step(self.spec, 0, frames, self.store, self.working_sets.get("asof")):
            if frame.kind is FrameKind.ROWS:
                for row in decode_table(frame.payload).to_pylist():
                    self._take(tuple(row[name] for name in OUTPUT.names), row.get(WEIGHT, 1), row.get(ID))
            elif frame.kind is FrameKind.COUNTER:
                self.counters |= {name.removeprefix("asof."): value for name, value in counters_in(frame).items()}

    def _take(self, row: tuple[Any, ...], weight: int, id: str | None) -> None:
        self.results[row] += weight
        assert self.results[row] >= 0, f"{row} was taken away more often than given (trap 18)"
        if self.results[row] == 0:
            del self.results[row]
        if id is not None and weight > 0:
            assert id not in self.ids, "an id is given once"
            self.ids[id] = row
        elif id is not None:
            assert self.ids.pop(id) == row, "what is taken away was given under that id"

    def rows(self, left: Sequence[Row], right: Sequence[Row], newest: int, *, newest_right: int | None = None) -> None:
        """One batch, after which both frontiers stand at ``newest - DELAY``, or the right one at ``newest_right``."""
        names = {"l": {WEIGHT: "w", ID: "id"}, "r": {}}
        frames: list[Frame] = []
        for number, (side, rows) in enumerate((("l", left), ("r", right))):
            schema = self.schemas[number]
            given = [
                {
                    name: row.get("t" if name == TIME else names[side].get(name, name.split(":")[-1].strip("$")))
                    for name in schema.names
                }
                for row in rows
            ]
            frames += row_frames(pa.Table.from_pylist(given, schema), bucket=0, input=number)
        behind = newest - DELAY
        marks = (behind, behind if newest_right is None else newest_right)
        self.feed([*frames, *(mark_frame(0, i, "", frontier) for i, frontier in enumerate(marks))])


def steps_of(most_ahead: int, most_value: int) -> st.SearchStrategy[Steps]:
    """Draw steps whose rows are at most so far ahead, with values up to a limit."""
    row = st.tuples(
        st.sampled_from("llrrr"),
        st.integers(0, most_ahead),
        st.sampled_from([1, 2, None]),
        st.integers(0, most_value),
        st.integers(1, 3),
        st.sampled_from([False, False, True]),
    )
    return st.lists(st.tuples(st.integers(0, 5), st.lists(row, max_size=7), st.booleans()), max_size=9)
