"""Debezium's change records into rows with ``_tp_delta``: see connectors/formats/debezium.py for what a record means.

A record is one JSON object (records/json.py), plain or within ``payload``.  Left to Spark are, beside what is left of
any JSON: deletes by key alone, records that are no change, and times that may be missing or NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TP_DELTA
from watersmeet.records.decoder import Decoded, decode_blocks
from watersmeet.records.json import as_declared, is_plain, is_plain_type, read_objects, readings

_OPS = pa.array(["c", "r", "u", "d"])
_UPDATE, _DELETE = 2, 3  # places in _OPS
_MOST_MILLIS = 2**52
_BEFORE, _AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class ChangeTime:
    """The event-time column of a changing stream, and how many microseconds (``scale``) its units have."""

    column: str
    scale: int


@dataclass(slots=True)
class DebeziumDecoder:
    """Decodes change records; ``columns`` are those of a row's image, ``time`` is its event time if it has one.

    ``keeps_before``: the image before a change is a row of its own, a retraction, also of an update.  Else a deletion
    is a row with the time of the change.
    """

    columns: pa.Schema
    time: ChangeTime | None
    keeps_before: bool
    _reads: list[pa.Schema] = field(init=False)

    def __post_init__(self) -> None:
        self._reads = [schema for image in readings(self.columns) for schema in _envelopes(image)]

    def decode(self, values: pa.Array) -> Decoded:
        """Decode records that are plainly one change; a record without a value is none, and has no rows."""
        found = decode_blocks(values, np.flatnonzero(is_plain(values)), self._block)
        rows, of_rows, left = self._rows(found.rows)
        has_value = values.is_valid().to_numpy(zero_copy_only=False)
        all_left = np.union1d(found.left[has_value[found.left]], found.records[left])
        return Decoded(rows, found.records[of_rows], all_left)

    def _block(self, values: pa.Array) -> pa.Table | None:
        """A row per record: ``op``, ``millis`` (when the change was made), ``before`` and ``after``."""
        for place, schema in enumerate(self._reads):
            read = read_objects(values, schema)
            if read is not None and (envelopes := self._envelopes(read)) is not None:
                self._reads.insert(0, self._reads.pop(place))
                return envelopes
        return None

    def _envelopes(self, read: pa.Table) -> pa.Table | None:
        if "payload" in read.column_names:
            if read["op"].null_count < read.num_rows:
                return None
            read = _fields(read["payload"])
        if read["op"].null_count:
            return None
        columns = {"op": read["op"], "millis": pc.coalesce(_fields(read["source"])["ts_ms"], read["ts_ms"])}
        for name in (_BEFORE, _AFTER):
            image = as_declared(_fields(read[name]), self.columns)
            if image is None:
                return None
            fields = [column.combine_chunks() for column in image.columns]
            absent = read[name].is_null().combine_chunks()
            columns[name] = pa.StructArray.from_arrays(fields, fields=list(self.columns), mask=absent)
        return pa.table(columns)

    def _rows(self, envelopes: pa.Table) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """The rows of the changes, the number of each row's change, and the numbers of those left to Spark."""
        op = pc.fill_null(pc.index_in(envelopes["op"], _OPS), -1).to_numpy()
        has_before, has_after = (envelopes[name].is_valid().to_numpy() for name in (_BEFORE, _AFTER))
        is_delete = op == _DELETE
        ends_a_row = is_delete | (op == _UPDATE) if self.keeps_before else is_delete
        good = (op >= 0) & np.where(is_delete, True, has_after) & np.where(ends_a_row, has_before, True)
        before, after = np.flatnonzero(good & ends_a_row), np.flatnonzero(good & ~is_delete)
        rows = pa.concat_tables(
            [self._images(envelopes, _BEFORE, before, -1), self._images(envelopes, _AFTER, after, 1)]
        )
        numbers = np.concatenate([before, after])
        if self.time is not None:
            good[numbers[rows[self.time.column].is_null().to_numpy()]] = False
        order = np.argsort(numbers, kind="stable")  # a retraction before its new row
        order = order[good[numbers[order]]]
        return rows.take(pa.array(order)), numbers[order], np.flatnonzero(~good)

    def _images(self, envelopes: pa.Table, name: str, numbers: np.ndarray, delta: int) -> pa.Table:
        chosen = envelopes.take(pa.array(numbers))
        rows = _fields(chosen[name]) if len(numbers) else self.columns.empty_table()
        if self.time is not None and delta < 0 and not self.keeps_before:
            place = self.columns.names.index(self.time.column)
            happened = _in_units(chosen["millis"], self.time.scale, self.columns.field(place).type)
            rows = rows.set_column(place, self.columns.field(place), happened)
        return rows.append_column(TP_DELTA, pa.repeat(pa.scalar(delta, pa.int8()), len(numbers)))


def debezium_decoder(columns: pa.Schema, time: ChangeTime | None, *, keeps_before: bool) -> DebeziumDecoder | None:
    """A decoder for the columns of a row's image; None if only Spark can decode one of them.

    Spark reads an image twice, and a DECIMAL as a double at first.
    """
    known = all(is_plain_type(each.type) and not pa.types.is_decimal128(each.type) for each in columns)
    return DebeziumDecoder(columns, time, keeps_before) if known else None


def _envelopes(image: pa.Schema) -> list[pa.Schema]:
    """The schemas to read records as whose images are read as ``image``."""
    row = pa.struct(list(image))
    source = pa.struct([("ts_ms", pa.int64())])
    plain = pa.schema([("op", pa.string()), (_BEFORE, row), (_AFTER, row), ("source", source), ("ts_ms", pa.int64())])
    return [plain, pa.schema([("op", pa.string()), ("payload", pa.struct(list(plain)))])]


def _fields(structs: pa.ChunkedArray) -> pa.Table:
    return pa.Table.from_arrays(structs.flatten(), names=[each.name for each in structs.type])


def _in_units(millis: pa.ChunkedArray, scale: int, kind: pa.DataType) -> pa.ChunkedArray:
    """Milliseconds as values of an event-time column; NULL for those that only Spark can convert."""
    near = pc.and_(pc.less_equal(millis, _MOST_MILLIS), pc.greater_equal(millis, -_MOST_MILLIS))
    micros = pc.multiply(pc.if_else(near, millis, pa.scalar(None, pa.int64())), 1000)
    if pa.types.is_timestamp(kind):
        return micros.cast(kind)
    units = pc.floor(pc.divide(micros.cast(pa.float64()), scale)).cast(pa.int64()) if scale > 1 else micros
    low, high = (np.iinfo(kind.to_pandas_dtype()).min, np.iinfo(kind.to_pandas_dtype()).max)
    fits = pc.and_(pc.less_equal(units, high), pc.greater_equal(units, low))
    return pc.if_else(fits, units, pa.scalar(None, pa.int64())).cast(kind)
