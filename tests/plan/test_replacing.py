"""What a changed query can do with the state of the one before: the verdicts, and the results of those that go on."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.conftest import ALL
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.errors import UnsupportedError
from watersmeet.plan.replaced_results import complete_after
from watersmeet.plan.replacing import Verdict, Way, verdict_on
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAMS = """
CREATE STREAM l (k INT, v INT, u INT, t BIGINT, WATERMARK FOR t AS t - 3) WITH (event_time_unit = 'row');
CREATE STREAM r (k INT, w INT, x STRING, t BIGINT, WATERMARK FOR t AS t - 3) WITH (event_time_unit = 'row');
"""
SUM, OVER = "SELECT k, sum(v) AS s FROM l GROUP BY k", "coalesce(r.t, 0) > 5"
ITEMS = "l.k AS k, l.t AS lt, r.t AS rt"
MORE = f"{ITEMS}, l.v, r.w"


def join(kind: str = "", window: str = "4", items: str = ITEMS, where: str = "", end: str = "", on: str = "") -> str:
    within = f"r.t BETWEEN l.t - {window} AND l.t + {window}"
    return f"SELECT {items} FROM l {kind} JOIN r ON l.k = r.k AND {within}{on}{where} {end}"


def verdict(old: str, new: str, *, streams: str = STREAMS, changed: str | None = None) -> Verdict:
    before, after = Harness(*load_script(streams + old)), Harness(*load_script((changed or streams) + new))
    return verdict_on(before.plan, before.operators, after.plan, after.operators)


SUMS = "(SELECT k, sum(v) AS s FROM l GROUP BY k) a"
OF_SUMS = f"SELECT s, count() AS n FROM {SUMS}"
JOINED = f"SELECT a.s, b.w FROM {SUMS} JOIN r b ON a.k = b.k"
UNITED = f"SELECT s, count() AS n FROM (SELECT s FROM {SUMS}%s UNION ALL SELECT w AS s FROM r) GROUP BY s"
SEEDS = 8 if ALL else 1
AS_IT_IS, CHANGED, ANEW = Way.AS_IT_IS, Way.CHANGED, Way.ANEW
LEFT, CHANGELOG = (join("LEFT", end=f"EMIT {mode}") for mode in ("FINAL", "CHANGELOG"))
TESTED = (
    "SELECT k FROM l WHERE %s EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.t BETWEEN l.t AND l.t + 4)"
    " OR EXISTS (SELECT 1 FROM r WHERE r.w = l.k AND r.t BETWEEN l.t AND l.t + 4) EMIT FINAL"
)
CASES = {
    "test negated": (TESTED % "", TESTED % "NOT", ANEW, ""),
    "nothing": (join(), join(), AS_IT_IS, ""),
    "list": (join(), join(items="l.k + 1 AS k, r.t - l.t AS d"), AS_IT_IS, "SELECT list: was"),
    "no column of an item": (join(), join(items="l.t + r.t AS s"), CHANGED, "which columns it sends on"),
    "where on kept": (join(), join(where=" WHERE l.t > 5"), AS_IT_IS, "conditions on rows of l: were none"),
    "where on results": (LEFT, join("LEFT", where=f" WHERE {OVER}", end="EMIT FINAL"), AS_IT_IS, "over results"),
    "setting": (join(), join(end="SETTINGS worker_memory = '500MB'"), AS_IT_IS, "SETTINGS worker_memory"),
    "column added": (join(), join(items=f"{ITEMS}, l.v"), CHANGED, "l:v int32 is added"),
    "column left out": (join(items=f"{ITEMS}, l.v"), join(), CHANGED, "l:v int32 is no longer kept"),
    "longer": (LEFT, join("LEFT", "9", end="EMIT FINAL"), CHANGED, "the window was [-4, +4], is [-9, +9]"),
    "shorter, inner": (join(), join(window="2"), CHANGED, "the window was [-4, +4], is [-2, +2]"),
    "shorter, changelog": (CHANGELOG, join("LEFT", "2", end="EMIT CHANGELOG"), CHANGED, "the window was"),
    "shorter, final": (LEFT, join("LEFT", "2", end="EMIT FINAL"), ANEW, "its window is shorter: left rows"),
    "unbounded": (join(), f"SELECT {ITEMS} FROM l JOIN r ON l.k = r.k AND r.t >= l.t - 4", ANEW, ""),
    "other kind": (join(), LEFT, ANEW, "of its condition, kind differ"),
    "other key": (join(), join(on=" AND l.u = r.w"), ANEW, "made of something else"),
    "residual": (join(items=MORE), join(items=MORE, on=" AND l.v < r.w"), ANEW, "reads other"),
    "when": (CHANGELOG, LEFT, ANEW, "it emits otherwise"),
    "aggregate": (join(), join(items="l.k, count() AS n", end="GROUP BY l.k"), ANEW, "its operators were"),
    "other aggregate": (SUM, SUM.replace("sum", "max"), ANEW, "cannot be made"),
    "of sums": (f"{OF_SUMS} GROUP BY s", f"{OF_SUMS} WHERE s > 4 GROUP BY s", ANEW, "rows of a: were none"),
    "of sums, wider": (f"{OF_SUMS} WHERE s > 4 GROUP BY s", f"{OF_SUMS} GROUP BY s", ANEW, "may be retracted"),
    "sums joined": (JOINED, f"{JOINED} WHERE a.s > 4", ANEW, "may be retracted"),
    "sums in a union": (UNITED % "", UNITED % " WHERE s > 4", ANEW, "may be retracted"),
    "having": (SUM, f"{SUM} HAVING sum(v) > 3", AS_IT_IS, "is retracted only if it meets the new conditions"),
    "plain": ("SELECT k FROM l", "SELECT v, u FROM l WHERE k > 1", CHANGED, "l:v int32 is added"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_classified(name: str) -> None:
    old, new, way, text = CASES[name]
    found = verdict(old, new)
    said = [*found.texts, *(line for each in found.operators for line in (*each.differences, each.why))]
    assert found.way is way, said
    assert text in "\n".join(said)
    assert found.is_same is (name == "nothing")


def test_wider_types_are_taken_and_others_are_not() -> None:
    old = join(items=f"{ITEMS}, l.v")
    wider = STREAMS.replace("v INT", "v BIGINT")
    assert verdict(old, old, changed=wider).way is CHANGED
    assert verdict(old, old, streams=wider, changed=STREAMS).way is ANEW
    key = verdict(old, old, changed=STREAMS.replace("l (k INT", "l (k BIGINT").replace("r (k INT", "r (k BIGINT"))
    assert (key.way, key.operators[0].why.split(",")[0]) == (ANEW, "input 1 is made of something else: keys")


# -- what goes on gives ------------------------------------------------------------------------------------------------


def pieces(seed: int, count: int) -> list[dict[str, StepInput]]:
    """Rows out of order by less than the delay, so that none is late."""
    chance = random.Random(seed)

    def rows(number: int) -> StepInput:
        times = [5 * number + chance.randrange(7) for _ in range(14)]
        return StepInput([(chance.randrange(5), chance.randrange(100), str(chance.randrange(9)), t) for t in times])

    def of_left(number: int) -> StepInput:
        return StepInput([(k, v, chance.randrange(9), t) for k, v, _, t in rows(number).rows])

    return [{"l": of_left(number), "r": rows(number)} for number in range(count)]


def run(
    fed: list[dict[str, StepInput]], old: str, new: str, at: int, changed: str = "", streams: str = STREAMS
) -> tuple[Counter[Any], int | None]:
    """The results of a query that is replaced before piece ``at``, and since when they are complete."""
    harness, total, after = Harness(*load_script(streams + old)), Counter[Any](), None
    for number, rows in enumerate(fed):
        if number == at:
            before = list(harness.operators)
            manifests = [harness.manifest(operator) for operator in range(len(before))]
            found = harness.replace(*load_script((changed or streams) + new))
            frontiers = [each.frontier for each in manifests]
            newest = max(time for each in manifests for time in each.newest.values())
            after = complete_after(found, before, harness.operators, frontiers, newest)
        events = [Event(EventKind.END)] if number == len(fed) - 1 else []
        for weight, row in harness.step(rows, events).changes:
            total[row] += weight
    return +total, after


def newer(rows: Counter[Any], after: int, places: tuple[int, ...] = (1, 2)) -> Counter[Any]:
    return Counter({row: n for row, n in rows.items() if any(row[at] is not None and row[at] > after for at in places)})


FINAL = "EMIT FINAL"
KINDS = {
    "inner": ("", ""),
    "left": ("LEFT", FINAL),
    "full": ("FULL", FINAL),
    "changelog": ("FULL", "EMIT CHANGELOG"),
}
SAMPLED = [pytest.param(kind, marks=[] if kind == "full" else [pytest.mark.slow]) for kind in KINDS]


@pytest.mark.parametrize("kind", SAMPLED)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_longer_window_is_complete_from_the_time_that_is_said(kind: str, seed: int) -> None:
    name, end = KINDS[kind]
    fed = pieces(seed, 8)
    old, new = join(name, "4", end=end), join(name, "11", end=end)
    found, after = run(fed, old, new, 4)
    always, _ = run(fed, new, new, 99)
    before, _ = run(fed[:4], old, old, 99)
    assert after is not None
    assert newer(found, after) == newer(always, after)
    assert newer(found, after)
    # nothing comes twice, and no pair that either version has is lost because of the change
    pairs = Counter({row: n for row, n in found.items() if None not in row})
    wanted = Counter({row: n for row, n in always.items() if None not in row})
    assert pairs - wanted == Counter()
    first = Counter({row: n for row, n in before.items() if None not in row})
    assert first - pairs == Counter()
    if kind == "left":
        rows = Counter((row[0], row[1]) for row in found if row[1] is not None)
        everything = Counter((row[0], row[1]) for row in always)
        assert set(rows) == set(everything)
        padded = {(row[0], row[1]): n for row, n in found.items() if row[2] is None}
        given = Counter((row[0], row[3]) for piece in fed for row in piece["l"].rows)
        assert all(n <= given[key] for key, n in padded.items())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_shorter_window_of_an_inner_join_is_exact_at_once(seed: int) -> None:
    fed = pieces(seed, 8)
    old, new = join(window="9"), join(window="2")
    found, after = run(fed, old, new, 4)
    always, _ = run(fed, new, new, 99)
    before, _ = run(fed[:4], old, old, 99)
    assert after is not None
    assert newer(found, after) == newer(always, after)
    assert all(abs(row[1] - row[2]) <= 2 for row in found - before)


@pytest.mark.parametrize("kind", SAMPLED)
def test_an_added_column_is_null_in_rows_that_came_before(kind: str) -> None:
    name, end = KINDS[kind]
    fed = pieces(5, 8)
    old, new = join(name, end=end), join(name, items=f"{ITEMS}, l.v, r.x", end=end)
    found, after = run(fed, old, new, 4)
    always, _ = run(fed, new, new, 99)
    assert after is not None
    assert newer(found, after) == newer(always, after)
    narrow = Counter(row[:3] for row in found.elements() if len(row) == 5)
    late = [row for row in found if len(row) == 5 and row[1] is not None and row[3] is None]
    assert late  # rows of l that came before the change
    assert sum(narrow.values()) > 0


@pytest.mark.parametrize("kind", [pytest.param("inner", marks=pytest.mark.slow), "full"])
def test_a_column_that_is_left_out_is_dropped_and_one_that_is_wider_is_kept(kind: str) -> None:
    name, end = KINDS[kind]
    fed = pieces(6, 6 if ALL else 4)
    with_column = join(name, items=f"{ITEMS}, l.v", end=end)
    found, _ = run(fed, with_column, join(name, end=end), 2)
    always, _ = run(fed, join(name, end=end), join(name, end=end), 99)
    assert Counter(row[:3] for row in found.elements()) == Counter(always.elements())
    wide = STREAMS.replace("v INT", "v BIGINT")
    found, _ = run(fed, with_column, with_column, 2, wide)
    always, _ = run(fed, with_column, with_column, 99)
    assert found == always


def test_another_condition_holds_from_now_on() -> None:
    fed = pieces(7, 8)
    old, new = join(items=f"{ITEMS}, l.v"), join(items=f"{ITEMS}, l.v", where=" WHERE l.v > 50")
    found, after = run(fed, old, new, 4)
    always, _ = run(fed, new, new, 99)
    assert after is not None
    assert newer(found, after) == newer(always, after)


def test_a_chain_is_complete_once_pairs_of_stored_rows_are_out_of_reach() -> None:
    """A later join may meet a pair that only the new window has: of two rows that came before the change."""

    def query(window: int) -> str:
        return (
            f"SELECT l.k, l.t AS lt, r.t AS rt, z.t AS zt FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - {window} AND"
            f" l.t + {window} JOIN z ON r.w = z.w AND z.t BETWEEN r.t - 50 AND r.t + 50"
        )

    streams = STREAMS + STREAMS.split("\n")[2].replace("STREAM r", "STREAM z")

    def rows(*given: tuple[Any, ...]) -> StepInput:
        return StepInput(list(given))

    fed = [
        {"l": rows((1, 0, 0, 10)), "r": rows((9, 9, "", 10)), "z": rows((9, 9, "", 10))},
        {"l": rows((9, 0, 0, 30)), "r": rows((1, 7, "", 30)), "z": rows((9, 9, "", 30))},
        {"l": rows((9, 0, 0, 60)), "r": rows((9, 9, "", 60)), "z": rows((7, 7, "", 60))},
        {"l": rows((2, 0, 0, 170)), "r": rows((2, 7, "", 190)), "z": rows((7, 7, "", 180))},
    ]
    found, after = run(fed, query(4), query(25), 2, streams=streams)
    always, _ = run(fed, query(25), query(25), 99, streams=streams)
    assert found.total() > 0
    assert always - found  # l@10 and r@30 met nothing, and z@60 would meet both
    assert after == 48 + 25 + 50
    assert newer(found, after, (1, 2, 3)) == newer(always, after, (1, 2, 3)) != Counter()


def test_a_longer_window_under_an_aggregate_is_taken() -> None:
    def query(window: int) -> str:
        return join(window=str(window), items="l.k, count() AS n", end="GROUP BY l.k")

    found = verdict(query(4), query(9))
    assert found.way is CHANGED, found
    total, after = run(pieces(8, 8), query(4), query(9), 4)
    assert after is None  # groups go on from counts of rows of any age
    assert total


def test_what_needs_a_new_version_does_not_go_on() -> None:
    harness = Harness(*load_script(STREAMS + LEFT))
    with pytest.raises(UnsupportedError, match="new version"):
        harness.replace(*load_script(STREAMS + join("LEFT", "2", end="EMIT FINAL")))


@pytest.mark.parametrize("buckets", [1, 2])
def test_a_row_that_was_padded_is_not_padded_again(buckets: int) -> None:
    """It stands in a segment with one that is open, and a longer window would open it again."""
    old, new = (join("LEFT", window, end=FINAL) for window in ("40", "90"))
    harness = Harness(*load_script(STREAMS + old), buckets=buckets)
    first = harness.step({"l": StepInput([(1, 0, 0, 0), (1, 0, 0, 9)]), "r": StepInput([(2, 0, "", 0)])})
    later = harness.step({"l": StepInput([(3, 0, 0, 48)]), "r": StepInput([(2, 0, "", 48)])})
    assert [*first.changes, *later.changes] == [(1, (1, 0, None))]  # the frontier is 45: 0 + 40 < 45
    harness.replace(*load_script(STREAMS + new))
    rest = harness.step({}, [Event(EventKind.END)])
    assert sorted(row for _, row in rest.changes) == [(1, 9, None), (3, 48, None)]
