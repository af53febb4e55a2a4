"""The ``print`` sink: each batch's rows to the terminal, ``+`` for a row that came and ``-`` for one taken back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from pyspark.sql import DataFrame

from watersmeet.columns import TP_DELTA

#: A row that came (weight +1) or was taken back (-1): weight and values.
Change: TypeAlias = tuple[int, tuple[object, ...]]
#: Takes column names, a batch's changes, and the batch's number; each batch of a query comes, also an empty one.
Show: TypeAlias = Callable[[Sequence[str], Sequence[Change], int], None]


def print_batch(frame: DataFrame, show: Show, batch: int, *, changelog: bool) -> None:
    """Hand the rows of a batch to ``show``; those of a changelog have their weight in ``_tp_delta``."""
    table = frame.toArrow()
    names = [name for name in frame.columns if not (changelog and name.lower() == TP_DELTA)]
    weights = [1] * table.num_rows
    for name in set(frame.columns) - set(names):
        weights = table[name].to_pylist()
    rows = [tuple(map(_plain, row.values())) for row in table.select(names).to_pylist()]
    # within a batch the rows that go first, as one reads a correction
    show(names, sorted(zip(weights, rows, strict=True), key=lambda change: change[0]), batch)


def _plain(value: object) -> object:
    """A value as people write it: a time in the session's zone, without naming it."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def show_plainly(_names: Sequence[str], changes: Sequence[Change], _batch: int) -> None:
    """Rows as lines on standard output."""
    for weight, row in changes:
        values = ", ".join("NULL" if value is None else str(value) for value in row)
        sys.stdout.write(f"{'+' if weight > 0 else '-'} {values}\n")
    sys.stdout.flush()
