"""Exact sums of doubles, from which the value of a retracted row can be subtracted again.

A running sum of doubles drifts with every rounding, and 1e300 or infinity never leaves it.  Here each finite value is
split into an integer m and a power of two, x = m * 2**e, where e is a multiple of 32.  The m of each e are added up as
integers.  Only a result combines them into a double, the greatest e first.

    1e300 + 1.0 - 1e300    is  {e = 928: m - m, e = -64: 2**64}, so 1.0

An m has at most 86 bits: 2**40 of them fit in the 127 bits of one e's sum.
"""

from __future__ import annotations

from watersmeet.kernels.aggregate.parts import Parts

_STEP = 32
_LEAST = -1074  # the power of two of the least double
# In place of a power of two: values that are not finite, which are counted.
_INFINITE, _MINUS_INFINITE, _NAN = 10_000, 10_001, 10_002


def exact_double_sum(value: str, parts: Parts) -> str:
    """Return SQL for the sum of doubles, 0 if there are none; ``value`` is SQL over the input rows."""
    x = f"CAST({value} AS DOUBLE)"
    # 54 below the exponent of the value: m is an integer even if log2 is off by one
    last = f"greatest(CAST(floor(log2(abs({x}))) AS INT) - 54, {_LEAST})"
    power = f"greatest(CAST(floor({last} / {_STEP}.0) AS INT) * {_STEP}, {_LEAST})"
    finite = f"isfinite({x}) AND {x} <> 0"
    exponent = (
        f"CASE WHEN {finite} THEN {power} WHEN isnan({x}) THEN {_NAN} "
        f"WHEN {x} > 0 AND NOT isfinite({x}) THEN {_INFINITE} WHEN {x} < 0 THEN {_MINUS_INFINITE} END"
    )
    amount = f"CASE WHEN {finite} THEN CAST({x} / pow(2.0, {power}) AS HUGEINT) ELSE 1 END"
    part = (
        f"CASE v0 WHEN {_INFINITE} THEN CAST('inf' AS DOUBLE) WHEN {_MINUS_INFINITE} THEN CAST('-inf' AS DOUBLE) "
        f"WHEN {_NAN} THEN CAST('nan' AS DOUBLE) ELSE CAST(w AS DOUBLE) * pow(2.0, v0) END"
    )
    return f"coalesce({parts.figure((exponent,), f'sum({part} ORDER BY v0 DESC)', amount=amount)}, 0.0)"
