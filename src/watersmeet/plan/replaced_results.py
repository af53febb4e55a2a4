"""Since when the results of a query that was changed are as if it had always been so."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.engine.specs import OperatorSpec
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import WindowMatch
from watersmeet.plan.replacing import Verdict


def complete_after(
    verdict: Verdict, old: Sequence[OperatorSpec], new: Sequence[OperatorSpec], frontiers: Sequence[int], newest: int
) -> int | None:
    """The event time such that each result of which a row is newer is as if the query had always been as it is now.

    ``frontiers`` are those of the operators, ``newest`` is the newest event time of any row so far.  None: there is no
    such time, since rows of any age meet.
    """
    after, reach = newest, 0
    storing = [each for each in zip(old, new, strict=True) if each[1].kernel.homes != {}]
    # rows of an earlier join that were stored, or are missing, as its old window had it
    is_chain = any(_bounds(was) != _bounds(now) for was, now in storing[:-1])
    for was, now, frontier in zip(old, new, frontiers, strict=True):
        span = _reach(now)
        if span is None:
            return None
        reach += span
        after = max(after, frontier + _longer(was, now))
    return after + (reach if verdict.mixes or is_chain else 0)


def _longer(old: OperatorSpec, new: OperatorSpec) -> int:
    """By how much a window is longer than it was, on the side where it is more."""
    if not (isinstance(old.kernel, IntervalJoin) and isinstance(new.kernel, IntervalJoin)):
        return 0
    was, now = old.kernel.match, new.kernel.match
    longer = [0]
    if was.upper is not None and now.upper is not None:
        longer.append(now.upper - was.upper)
    if was.lower is not None and now.lower is not None:
        longer.append(was.lower - now.lower)
    return max(longer)


def _bounds(spec: OperatorSpec) -> tuple[int | None, int | None]:
    match = spec.kernel.match if isinstance(spec.kernel, IntervalJoin) else None
    return (None, None) if match is None else (match.lower, match.upper)


def _reach(spec: OperatorSpec) -> int | None:
    """How far apart the rows of one result may be; None: as far as any."""
    if spec.kernel.homes == {}:
        return 0
    if not isinstance(spec.kernel, IntervalJoin) or type(spec.kernel.match) is not WindowMatch:
        return None
    match = spec.kernel.match
    return None if match.lower is None or match.upper is None else max(match.upper, -match.lower, 0)
