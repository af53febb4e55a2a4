"""Decoded values as columns: the rows that fit, and why others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.records.schema_registry.cells import MisfitError, fit
from watersmeet.records.schema_registry.decoder import Outcome

#: Reads the values of the declared columns from a record; raises the errors that ``build`` is told of.
ReadRow = Callable[[bytes], Sequence[Any]]


def build(
    values: Iterable[bytes], columns: pa.Schema, read: ReadRow, reason_of: Callable[[Exception], str | None]
) -> Outcome:
    """Read records; ``reason_of`` says what an error means, and None for one that is none of a record."""
    fits = [(each.name, fit(each.type)) for each in columns]
    found: list[list[Any]] = [[] for _ in columns]
    records: list[int] = []
    reasons: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            row = [
                None if each is None else _fitted(name, within, each)
                for (name, within), each in zip(fits, read(value), strict=True)
            ]
        except Exception as error:
            reason = str(error) if isinstance(error, MisfitError) else reason_of(error)
            if reason is None:
                raise
            reasons[place] = reason
            continue
        records.append(place)
        for cells, each in zip(found, row, strict=True):
            cells.append(each)
    arrays = [pa.array(cells, each.type) for cells, each in zip(found, columns, strict=True)]
    return Outcome(pa.Table.from_arrays(arrays, schema=columns), np.array(records, np.int64), reasons)


def _fitted(name: str, within: Callable[[Any], Any], value: Any) -> Any:
    try:
        return within(value)
    except MisfitError as error:
        raise MisfitError(f"{name}: {error}") from None
