"""The changes of a step, one by one: the same net changes, and no row is taken away after its successor came."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import ID, WEIGHT
from watersmeet.engine.settle import settled

VALUES = st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["x", None, "y"]), st.sampled_from([0.5, None]))
CHANGES = st.lists(st.tuples(VALUES, st.sampled_from([1, -1])), max_size=12)


def table(changes: list[tuple[tuple[object, ...], int]]) -> pa.Table:
    columns = [pa.array([row[i] for row, _ in changes], kind) for i, kind in enumerate(TYPES)]
    return pa.table([*columns, pa.array([weight for _, weight in changes], pa.int8())], names=["a", "b", "c", WEIGHT])


TYPES = (pa.int32(), pa.string(), pa.float64())


def net(rows: pa.Table) -> Counter[tuple[object, ...]]:
    total: Counter[tuple[object, ...]] = Counter()
    for *row, weight in zip(*rows.to_pydict().values(), strict=True):
        total[tuple(row)] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


@given(CHANGES)
def test_net_changes_with_retractions_first(changes: list[tuple[tuple[object, ...], int]]) -> None:
    before = table(changes)
    after = settled(before)
    assert after.schema == before.schema
    assert net(after) == net(before)
    if -1 in before[WEIGHT].to_pylist():
        weights = after[WEIGHT].to_pylist()
        assert weights == sorted(weights)
        assert set(weights) <= {-1, 1}
        assert len(weights) == sum(map(abs, net(before).values()))


def test_changes_without_retractions_stay_as_they_are() -> None:
    rows = table([((2, "x", 0.5), 1), ((1, "x", 0.5), 1), ((2, "x", 0.5), 1)])
    assert settled(rows) is rows
    without_weights = rows.drop_columns([WEIGHT])
    assert settled(without_weights) is without_weights


def test_rows_with_an_id_cancel_out_by_it() -> None:
    """A row that came, went and came again is there once; one that came and went leaves nothing to look up.

    A retraction names its row by the id; its other values do not count.
    """
    changes = [(1, "r1", 1), (1, "r1", -1), (1, "r1", 1), (2, "r2", 1), (9, "r2", -1), (3, "r3", -1), (4, "r4", 1)]
    values, ids, weights = zip(*changes, strict=True)
    before = pa.table({"v": values, ID: ids, WEIGHT: pa.array(weights, pa.int8())})
    assert settled(before).to_pydict() == {"v": [3, 1, 4], ID: ["r3", "r1", "r4"], WEIGHT: [-1, 1, 1]}


def test_rows_without_an_id_stay_beside_one_that_cancels_out() -> None:
    """A pair is never retracted and has no id: many pairs beside a padded row that came and went are no one pair."""
    changes = [(1, None, 1), (2, None, 1), (8, "l7", 1), (8, "l7", -1), (3, None, 1)]
    values, ids, weights = zip(*changes, strict=True)
    after = settled(pa.table({"v": values, ID: ids, WEIGHT: pa.array(weights, pa.int8())}))
    assert after["v"].to_pylist() == [1, 2, 3]
    assert after[WEIGHT].to_pylist() == [1, 1, 1]
