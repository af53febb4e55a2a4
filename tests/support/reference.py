"""The obvious interval join: two nested loops over all rows, in batch. Kernels are tested against it.

It is slow on purpose and shares no code with the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

Row = Mapping[str, Any]
Pair = tuple[Row | None, Row | None]
Kind = Literal["inner", "left", "right", "full", "semi", "anti", "right_semi", "right_anti"]


def interval_join(
    left: Sequence[Row],
    right: Sequence[Row],
    kind: Kind,
    *,
    on: Sequence[tuple[str, str]] = (),
    null_safe: Sequence[bool] | None = None,
    times: tuple[str, str] = ("t", "t"),
    lo: int | None = None,
    hi: int | None = None,
    residual: Callable[[Row, Row], bool | None] | None = None,
    alternative: Callable[[Row], bool | None] | None = None,
) -> list[Pair]:
    """All results of the join over all rows, as (left row, right row) pairs; None stands for NULL padding.

    What matches: a left row l and a right row r match if and only if all of these are true::

        l[a] = r[b]                 for every (a, b) of ``on``; no pair: every row meets every other
        lo <= r[t] - l[t] <= hi     t being the names in ``times``; a bound of None is open
        residual(l, r)              true, not false and not None (unknown)

    Ties: every matching pair is a result, equal times and wholly equal rows included; the result is a multiset.

    NULL keys: NULL equals nothing, unless ``null_safe`` is true for that pair of columns (``IS NOT DISTINCT FROM``):
    then NULL equals NULL, and nothing else. NaN equals NaN and 0.0 equals -0.0, as in Spark. A NULL time matches
    nothing where a bound is given.

    Kinds: INNER the matching pairs; LEFT also (l, None) for each l without a match; RIGHT also (None, r) for each r
    without one; FULL both; SEMI (l, None) once for each l with a match; ANTI (l, None) for each l without one;
    RIGHT SEMI and RIGHT ANTI the same of r, as (None, r).

    An ``alternative`` of a SEMI or ANTI join: also (l, None) once for each other l of which it is true.

    There are no late rows and no frontier here: the rows given are the rows accepted. Order of the result: by left
    row, then right row, then the unmatched right rows.

    Example: L 10, R 8, 15, 16 with lo = -5, hi = 5, LEFT gives (10, 8) and (10, 15).
    """
    safe = null_safe if null_safe is not None else [False] * len(on)
    results: list[Pair] = []
    matched_right: set[int] = set()
    for one in left:
        partners = []
        for index, other in enumerate(right):
            keys_equal = all(_equal(one[a], other[b], nulls) for (a, b), nulls in zip(on, safe, strict=True))
            if not keys_equal or not _within(one[times[0]], other[times[1]], lo, hi):
                continue
            if residual is None or residual(one, other) is True:
                partners.append(other)
                matched_right.add(index)
        if kind in ("inner", "left", "right", "full"):
            results += [(one, other) for other in partners]
        passes = alternative is not None and alternative(one) is True
        if kind == "semi" and (partners or passes):
            results.append((one, None))
        if kind in ("left", "full", "anti") and (passes or not partners):
            results.append((one, None))
    if kind == "right_semi":
        results += [(None, other) for index, other in enumerate(right) if index in matched_right]
    if kind in ("right", "full", "right_anti"):
        results += [(None, other) for index, other in enumerate(right) if index not in matched_right]
    return results


def _equal(one: Any, other: Any, nulls_equal: bool) -> bool:
    if one is None or other is None:
        return nulls_equal and one is None and other is None
    both_nan = one != one and other != other
    return bool(one == other) or both_nan


def _within(left_time: int | None, right_time: int | None, lo: int | None, hi: int | None) -> bool:
    if lo is None and hi is None:
        return True
    if left_time is None or right_time is None:
        return False
    difference = right_time - left_time
    return (lo is None or lo <= difference) and (hi is None or difference <= hi)


def asof_join(
    left: Sequence[Row],
    right: Sequence[Row],
    direction: Literal["backward", "forward", "nearest"],
    *,
    on: Sequence[tuple[str, str]] = (),
    null_safe: bool = False,
    strict: bool = False,
    tolerance: int | None = None,
    outer: bool = False,
    residual: Callable[[Row, Row], bool | None] | None = None,
) -> list[Pair]:
    """Each left row with the nearest right row, both having a time ``t`` and right rows a place ``seq``.

    Of the right rows with equal keys that lie on the side asked for (BACKWARD: ``r.t <= l.t``, strict ``<``), the one
    with the least distance counts; of equally near ones the earlier; of one time the last by ``seq``. It is a partner
    if it lies within the tolerance and the residual is true. Left rows without one come out as (l, None) if ``outer``.
    """
    results: list[Pair] = []
    for one in left:
        found = [
            other
            for other in right
            if all(_equal(one[a], other[b], null_safe) for a, b in on)
            and _on_side(one["t"], other["t"], direction, strict)
        ]
        best = min(found, key=lambda r: (abs(r["t"] - one["t"]), r["t"], -r["seq"]), default=None)
        near = best is not None and (tolerance is None or abs(best["t"] - one["t"]) <= tolerance)
        if best is not None and near and (residual is None or residual(one, best) is True):
            results.append((one, best))
        elif outer:
            results.append((one, None))
    return results


def _on_side(left: int | None, right: int | None, direction: str, strict: bool) -> bool:
    if left is None or right is None or (strict and left == right):
        return False
    return direction == "nearest" or (right <= left if direction == "backward" else right >= left)


def standing(rows: Sequence[Row], *, takes_away: bool, ends: bool, identity: Sequence[str] = ("pk",)) -> list[Row]:
    """Of rows with ``w`` (+1 or -1), ``pk``, ``t`` and ``seq`` those that say what holds; ``gone``: nothing does.

    Of rows of one identity and time the last counts. Where it is a -1, it takes away a row of +1 before it, if it may;
    else, if it may, it ends the key from its time on; else it says nothing.
    """
    found: list[Row] = []
    for row in rows:
        slot = ("t", *identity)
        same = sorted((r for r in rows if all(r[name] == row[name] for name in slot)), key=lambda r: r["seq"])
        if same[-1] is not row:
            continue
        if row["w"] > 0:
            found.append({**row, "gone": False})
        elif ends and not (takes_away and any(r["w"] > 0 for r in same)):
            found.append({**row, "gone": True})
    return found


def versions_at(rows: Sequence[Row], time: int | None) -> list[Row]:
    """Of standing rows the one of each ``pk`` that holds at a time (None: at no time), where one does."""
    newest: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda r: (r["t"], r["seq"])):
        if time is not None and row["t"] <= time:
            newest[row["pk"]] = row
    return [row for row in newest.values() if not row["gone"]]
