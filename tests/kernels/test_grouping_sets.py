"""ROLLUP, CUBE and GROUPING SETS: after each step, the answer is that of all sets over the rows that hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.kernels.test_aggregate import CHANGE, FUNCTIONS, Feed, Row, rounded
from watersmeet.kernels.aggregate import step

Sets = list[tuple[str, ...]]
KEYS = ("k", "x", "s")


def rollup(keys: Sequence[str]) -> tuple[str, Sets]:
    return f"ROLLUP({', '.join(keys)})", [tuple(keys[:length]) for length in range(len(keys) + 1)]


def cube(keys: Sequence[str]) -> tuple[str, Sets]:
    return f"CUBE({', '.join(keys)})", [chosen for n in range(len(keys) + 1) for chosen in combinations(keys, n)]


def listed(sets: Sets) -> tuple[str, Sets]:
    return f"GROUPING SETS({', '.join('(' + ', '.join(keys) + ')' for keys in sets)})", sets


SOME = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True)
PART = st.one_of(
    SOME.map(rollup),
    SOME.map(cube),
    st.lists(st.lists(st.sampled_from(KEYS), max_size=3, unique=True).map(tuple), min_size=1, max_size=3).map(listed),
    st.sampled_from(KEYS).map(lambda key: (key, [(key,)])),
)


def result(keys: tuple[str, ...], names: Sequence[str], rows: Sequence[Row], functions: Sequence[str]) -> Counter[Any]:
    """The results of one set, over all keys."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    found: Counter[Any] = Counter()
    for values, members in groups.items():
        of = dict(zip(keys, values, strict=True))
        bits = sum((name not in keys) << place for place, name in enumerate(reversed(names)))
        shown = (*(of.get(name) for name in names), bits, int(names[0] not in keys))
        found[rounded((*shown, *(FUNCTIONS[each](members) for each in functions)))] += 1
    return found


@settings(max_examples=max(settings.default.max_examples // 8 if settings.default else 0, 6))
@given(data=st.data())
def test_the_answer_is_that_of_all_sets(data: st.DataObject) -> None:
    parts = data.draw(st.lists(PART, min_size=1, max_size=2))
    sets = [tuple(dict.fromkeys(key for part in chosen for key in part)) for chosen in product(*(s for _, s in parts))]
    clause = ", ".join(text for text, _ in parts)
    names = [name for name in KEYS if any(name in keys for keys in sets)]
    # without keys there is nothing to show, and without sets no call of grouping
    assume(names and "(" in clause)
    functions = data.draw(st.lists(st.sampled_from(list(FUNCTIONS)), max_size=2, unique=True))
    shown = ", ".join((*names, f"grouping_id({', '.join(names)})", f"grouping({names[0]})", *functions))
    feed = Feed(f"SELECT {shown} FROM t GROUP BY {clause}", buckets=data.draw(st.integers(1, 2)))
    got: Counter[Any] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "MIN_SETTLED", data.draw(st.sampled_from([0, step.MIN_SETTLED])))
        for changes in data.draw(st.lists(st.lists(CHANGE, max_size=4), min_size=1, max_size=3)):
            if data.draw(st.booleans()):
                feed.harness.restart()
            # one change of each row, and of rows that are there
            last = {each if isinstance(each, int) else each["id"]: each for each in changes}
            given_now = [each for id, each in last.items() if not isinstance(each, int) or id in feed.rows]
            for weight, row in feed.step(*given_now):
                got[rounded(row)] += weight
            wanted = sum((result(keys, names, [*feed.rows.values()], functions) for keys in sets), Counter())
            assert +got == wanted, clause
