"""What is said where DuckDB cannot evaluate an expression over a row."""

from __future__ import annotations

import duckdb

from watersmeet.errors import WatersmeetError

#: What DuckDB raises for values that an expression cannot take.
EVALUATION_ERRORS = (duckdb.OutOfRangeException, duckdb.ConversionException)


def cannot_evaluate(operator: str, error: duckdb.Error) -> WatersmeetError:
    """The error to raise for an expression of an operator."""
    return WatersmeetError(
        f"an expression of {operator} cannot be evaluated: {str(error).splitlines()[0]}",
        detail="Spark, in ANSI mode, fails on such rows too",
        hint="filter such rows out, or CAST to a wider type, such as DECIMAL(38, 0); nothing was lost",
    )
