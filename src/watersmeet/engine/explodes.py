"""The elements of arrays as rows, computed in the worker: the same as runtime/source_columns.py has Spark compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID
from watersmeet.expressions.explodes import KEY, VALUE


@dataclass(frozen=True, slots=True)
class ExplodedColumns:
    """An array's column, and those of its elements' positions, its elements and their fields: (column, field).

    If it is the ``last`` that reads the array, rows lose it: otherwise each would carry all elements of its row.
    """

    array: str
    position: str
    element: str
    fields: tuple[tuple[str, str], ...]
    last: bool


def element_field(array: pa.Field, name: str) -> pa.Field:
    """The elements of an array's column, or the entries of a map's, as a column of that name."""
    if pa.types.is_map(array.type):
        return pa.field(name, pa.struct([pa.field(KEY, array.type.key_type), pa.field(VALUE, array.type.item_type)]))
    return pa.field(name, array.type.value_type)


def with_elements(rows: pa.Table, explodes: tuple[ExplodedColumns, ...], whole: pa.ChunkedArray) -> pa.Table:
    """Return the rows, once for each element, with its columns; a row stays once without any, or if it is ``whole``."""
    is_whole = np.asarray(whole)
    for each in explodes:
        array = rows[each.array].combine_chunks()
        offsets = array.offsets.to_numpy().astype(np.int64)
        counts = np.where(np.asarray(array.is_null()) | is_whole, 0, np.diff(offsets))
        times = np.maximum(counts, 1)
        places = np.repeat(np.arange(len(times)), times)
        within = np.arange(len(places)) - np.repeat(np.cumsum(times) - times, times)
        missing = counts[places] == 0
        elements = _elements(array, pa.array(offsets[places] + within, pa.int64(), mask=missing))
        position = pa.array(within, pa.int32(), mask=missing)
        rows = (rows.drop_columns([each.array]) if each.last else rows).take(pa.array(places))
        rows = rows.append_column(each.position, position).append_column(each.element, elements)
        for name, field in each.fields:
            rows = rows.append_column(name, pc.struct_field(elements, field))
        if ID in rows.column_names:  # a retraction has the names that its rows had
            place = pc.fill_null(position.cast(pa.string()), "")
            named = pc.binary_join_element_wise(rows[ID], place, ":")
            rows = rows.set_column(rows.column_names.index(ID), ID, named)
        is_whole = is_whole[places]
    return rows


def _elements(array: pa.Array, places: pa.Array) -> pa.Array:
    """The elements of a list or a map at these places among all of the array's; NULL has none."""
    if not pa.types.is_map(array.type):
        return array.values.take(places)
    entries = [array.keys.take(places), array.items.take(places)]
    return pa.StructArray.from_arrays(entries, [KEY, VALUE], mask=places.is_null())
