"""The ASOF kernel against nested loops: all directions, tolerances, residuals and NULL keys, in random batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.asof_bench import DELAY, END, MATCH, AsofBench
from tests.support.reference import Row, asof_join
from watersmeet.kernels.asof import step as asof_step
from watersmeet.kernels.asof.final import AsofJoin
from watersmeet.kernels.asof.match import Direction, Versions
from watersmeet.kernels.match import Key
from watersmeet.state import working_set

Name = Literal["backward", "forward", "nearest"]
Batch = list[tuple[str, int, int | None, int]]  # side, time behind the newest allowed, key, value


@settings(max_examples=settings.default.max_examples // 4 if settings.default else 12)
@pytest.mark.parametrize("settles_at", [0, 4, asof_step.MIN_SETTLED])
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
    match = replace(
        MATCH,
        keys=(Key("l:k", "r:k", null_safe),) if keyed else (),
        versions=Versions(("r:k",) if keyed else (), "r:$seq"),
        direction=Direction(direction),
        strict=strict,
        tolerance=tolerance,
        outer=outer,
        residual='l."l:v" <= r."r:v"' if tested else None,
    )
    bench = AsofBench(AsofJoin(match))
    left: list[Row] = []
    right: list[Row] = []
    newest = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asof_step, "MIN_SETTLED", settles_at)
        if settles_at:  # look stored rows up by an index, even if there are few
            patch.setattr(asof_step, "STORED_PER_LOOKUP", 0)
            patch.setattr(working_set, "MIN_INDEXED", 1)
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
    """Versions below the frontier are dropped, except the newest of each key, which later rows must meet (trap 21)."""
    monkeypatch.setattr(asof_step, "MIN_SETTLED", 50)
    bench = AsofBench(AsofJoin(MATCH))
    for now in range(0, 1000, 10):
        bench.rows([], [{"t": now, "k": key, "v": now, "seq": now} for key in range(5)], now)
    assert bench.counters["state_rows"] < 5 + 50 + 10
    bench.rows([{"t": 1000, "k": 3, "v": 7, "seq": 0}], [], 1010)
    assert bench.results == {(1000, 7, 990, 990): 1}
    bench.rows([{"t": 1500, "k": 9, "v": 7, "seq": 0}], [], 1510)
    assert len(bench.results) == 1, "key 9 has no version"
