"""The expiry of a row (logical/tree.py) as DuckDB SQL for the kernel."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.expressions.type_groups import INSTANTS
from watersmeet.plan.logical.tree import Expiry


def sql_of_expiry(expiry: Expiry, scale: int, term: Callable[[exp.Expr], tuple[str, exp.DataType]]) -> str:
    """DuckDB SQL of an expiry: the last internal event time of a partner, as a HUGEINT.

    It cannot overflow, within the limits of passes/expiries.py.  ``scale``: units of internal event time in one unit of
    the partner's column.  ``term`` returns a term's SQL and type.  Decimals are rounded so that the row stays longer.
    """
    parts = [f"{factor} * {_whole(*term(each), up=factor > 0)}" for factor, each in expiry.terms]
    total = f"({' + '.join([*parts, str(expiry.constant)])})"
    if expiry.divisor != 1:  # // rounds towards zero; a negative total must round down
        total = f"({total} // {expiry.divisor} - CAST({total} % {expiry.divisor} < 0 AS HUGEINT))"
    return total if scale == 1 else f"({total} * {scale})"


def _whole(sql: str, type: exp.DataType, *, up: bool) -> str:
    if type.is_type(*INSTANTS):
        return f"CAST(epoch_us({sql}) AS HUGEINT)"
    if type.is_type(exp.DataType.Type.DECIMAL):
        sql = f"{'ceil' if up else 'floor'}({sql})"
    return f"CAST({sql} AS HUGEINT)"
