"""How batches of rows reach the terminal: what the ``print`` connector calls, and its plain form."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

#: An added row (weight +1) or a retraction (-1): weight and values.
Change: TypeAlias = tuple[int, tuple[object, ...]]
#: Takes column names, a batch's changes and the batch's number. Every batch of a query is passed, also an empty one.
Show: TypeAlias = Callable[[Sequence[str], Sequence[Change], int], None]


def show_plainly(_names: Sequence[str], changes: Sequence[Change], _batch: int) -> None:
    """Write rows as lines to standard output."""
    for weight, row in changes:
        values = ", ".join("NULL" if value is None else str(value) for value in row)
        sys.stdout.write(f"{'+' if weight > 0 else '-'} {values}\n")
    sys.stdout.flush()
