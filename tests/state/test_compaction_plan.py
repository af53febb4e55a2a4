"""Compaction: few live segments over thousands of steps, and not a row lost."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from watersmeet.columns import TIME
from watersmeet.kernels.api import JoinKind
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.compaction_plan import FAN_IN, LARGE_BYTES, MAX_LARGE, MAX_MERGE_BYTES, plan_merges
from watersmeet.state.segments import FEW_ROWS, Segment, drop_segment, read_segment, split_by_time, write_segment
from watersmeet.state.store import MemoryStore

SECOND = 1_000_000


def width_of(lower: int | None, upper: int | None) -> int | None:
    side = SideColumns(("v",))
    return WindowMatch(JoinKind.INNER, side, side, (Key("k", "k"),), lower, upper).partition_width


class Log:
    """The host's use of segments, over one relation and without DuckDB."""

    def __init__(self, width: int | None, few: int = FEW_ROWS) -> None:
        self.width = width
        self.few = few
        self.store = MemoryStore()
        self.segments: list[Segment] = []
        self.written = 0

    def step(self, number: int, rows: pa.Table, forget: int) -> None:
        for segment in [each for each in self.segments if each.high < forget]:
            self._drop(segment)
        for piece in split_by_time(rows, self.width, few=self.few):
            self._add(number, piece)
        for group in plan_merges(self.segments, self.width):
            merged = pa.concat_tables([read_segment(self.store, segment) for segment in group]).combine_chunks()
            for segment in group:
                self._drop(segment)
            self._add(number, merged.filter(pc.greater_equal(merged[TIME], forget)))

    def live(self, forget: int) -> Counter[int]:
        tables = [read_segment(self.store, segment) for segment in self.segments]
        return Counter(v for each in tables for t, v in zip(*each.to_pydict().values(), strict=True) if t >= forget)

    def _add(self, number: int, rows: pa.Table) -> None:
        if rows.num_rows:
            self.written += rows.num_rows
            self.segments.append(write_segment(self.store, number, "left", rows))

    def _drop(self, segment: Segment) -> None:
        self.segments.remove(segment)
        drop_segment(self.store, segment)


# (window, how far behind its newest row the frontier is), in seconds
LOADS = {
    "a short window": ((-5, 5), 2),
    "a long window": ((-3600, 3600), 5),
    "no window": ((None, None), 5),
    "one bound": ((0, None), 5),
    "a window much shorter than the delay": ((-1, 1), 300),
    "a window of one point and a delay": ((0, 0), 300),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("few", [0, FEW_ROWS], ids=["parted", "whole"])
@pytest.mark.parametrize("load", LOADS)
def test_segments_stay_few_over_two_thousand_steps(load: str, few: int) -> None:
    """The design's bound: about 200 live segments a bucket are enough for any window."""
    (lower, upper), delay = LOADS[load]
    width = width_of(*(None if each is None else each * SECOND for each in (lower, upper)))
    log, rng = Log(width, few), random.Random(load)
    expected: dict[int, int] = {}
    most = 0
    for number in range(2000):
        now = number * SECOND
        rows = [(now - rng.randrange((delay + 1) * SECOND), 8 * number + i) for i in range(rng.randrange(8))]
        expected.update({v: t for t, v in rows})
        keep = None if upper is None else now - (delay + upper) * SECOND
        forget = -(2**62) if keep is None else keep
        table = pa.table({TIME: pa.array([t for t, _ in rows], pa.int64()), "v": [v for _, v in rows]})
        log.step(number, table, forget)
        most = max(most, len(log.segments))
        if most > 400:
            break
        if number % 500 == 499:
            assert log.live(forget) == Counter(v for v, t in expected.items() if t >= forget)
    assert most <= 200
    assert len(log.store) == sum(segment.chunks for segment in log.segments)


def test_a_row_is_rewritten_at_most_once_a_tier() -> None:
    log = Log(None)
    blob = pa.array([b"x" * 1000] * 20)
    for number in range(400):
        table = pa.table({TIME: pa.array([number] * 20, pa.int64()), "v": blob})
        log.step(number, table, -(2**62))
        assert len(log.segments) < 20
    assert log.written <= 400 * 20 * 8  # about log4(8 MB / 20 KB) = 5 tiers


def segment(number: int, *, nbytes: int = 100, high: int = 0, relation: str = "left") -> Segment:
    return Segment(str(number), relation, 1, nbytes, high, high, 1)


def test_only_segments_of_one_relation_partition_and_size_are_merged() -> None:
    alike = [segment(i) for i in range(FAN_IN)]
    others = [
        segment(10, relation="right"),
        segment(11, high=1000),
        segment(12, high=-1),
        segment(13, nbytes=LARGE_BYTES),
    ]
    assert plan_merges([*others, *alike], 100) == [alike]
    assert plan_merges([*others, *alike[1:]], 100) == []


def test_large_segments_are_merged_only_where_many_hold_a_relation() -> None:
    large = [segment(i, nbytes=2 * LARGE_BYTES) for i in range(MAX_LARGE)]
    assert plan_merges(large[1:], 1) == []
    assert plan_merges(large, 1) == [large[:FAN_IN]]
    few = [segment(i, nbytes=MAX_MERGE_BYTES) for i in range(20)] + [segment(i, nbytes=5 << 20) for i in range(FAN_IN)]
    assert plan_merges(few, 1) == []
    assert plan_merges([segment(i, nbytes=MAX_MERGE_BYTES + 1) for i in range(200)], 1) == []
    others = [segment(100 + i, nbytes=2 * LARGE_BYTES, relation="right") for i in range(9)]
    assert plan_merges([*others, *large[1:]], 1) == []


def test_large_segments_of_rows_that_stay_are_merged_however_few_they_are() -> None:
    large = [segment(i, nbytes=2 * LARGE_BYTES) for i in range(2 * FAN_IN)]
    assert plan_merges(large, None) == [large[:FAN_IN]]
    assert plan_merges(large[: FAN_IN - 1], None) == []
    assert plan_merges([segment(i, nbytes=MAX_MERGE_BYTES + 1) for i in range(FAN_IN)], None) == []


@pytest.mark.parametrize("pieces", [1, 16])
def test_state_that_grows_without_end_stays_in_few_segments_and_no_step_merges_much_of_it(pieces: int) -> None:
    """Segments of 6 MiB alone, without their rows: they are merged in two tiers of each time partition."""
    mib = 1024 * 1024
    held: list[Segment] = []
    brought = merged = 0
    for number in range(1000):
        held += [segment(number, nbytes=6 * mib, high=piece) for piece in range(pieces)]
        brought += pieces * 6 * mib
        groups = plan_merges(held, 1)
        for group in groups:
            held = [other for other in held if all(other is not one for one in group)]
            held.append(segment(number, nbytes=sum(one.nbytes for one in group), high=group[0].high))
        of_step = sum(one.nbytes for group in groups for one in group)
        assert of_step <= -(-2 * pieces // FAN_IN) * FAN_IN * MAX_MERGE_BYTES
        merged += of_step
        waiting = 2 * pieces * (2 * FAN_IN - 1)  # for a fourth, and then for their turn
        assert len(held) <= MAX_LARGE + waiting + brought // MAX_MERGE_BYTES
    assert merged <= 2 * brought
