"""Cases that a query in real time refuses, with the reason in its error, by file: results between two operators must be
what workers can compute (docs/real-time.md).
"""

from __future__ import annotations

from pathlib import Path

from watersmeet.testing.case import Case
from watersmeet.testing.runner import Failure

_BY_SPARK = "can be computed by Spark alone"
_REFUSED = {
    "aggregates_of_values": {"in subqueries: the types are known": _BY_SPARK},
    "explode": {
        "explode: an array made of both sides of a join": _BY_SPARK,
        "UNNEST: several arrays of an order that is replaced": _BY_SPARK,
        "UNNEST: LEFT JOIN with a condition, of several arrays of rows that are replaced": _BY_SPARK,
        "UNNEST: LEFT JOIN with a condition over both sides of a join before it": _BY_SPARK,
        "UNNEST: LEFT JOIN with a condition, WITH ORDINALITY, of rows that are replaced": _BY_SPARK,
        "stack: of rows that are replaced, in a SELECT list": _BY_SPARK,
    },
    "rising_groups": {
        "a cut time is the event time of the results: days of hours": _BY_SPARK,
        "hours in their order": "have no order of arrival in real time",
    },
}


def check_refused(case: Case, failure: Failure | None) -> Failure | None:
    """The failure of a case in real time; None where it should be refused, and is so in these words."""
    reason = _REFUSED.get(Path(case.path).stem, {}).get(case.title)
    if reason is None:
        return failure
    if failure is None:
        return Failure(case.line, "it is not refused in real time any more")
    return None if reason in failure.report and "micro-batches take it" in failure.report else failure
