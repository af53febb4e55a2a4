"""Parquet files as a stream's rows, read in the worker.

Spark lists the files and assigns them to batches; a task gets their names and reads them itself, so rows do not pass
through the JVM one by one.  The rows are those that Spark would read: columns by name, ignoring case; NULL for a column
that a file lacks; partition values from ``NAME=VALUE`` in a file's path; numbers widened to the declared type.  Any
other difference of types is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from watersmeet.columns import SEQUENCE, TP_TIME
from watersmeet.engine.parquet_pages import Run, bytes_ahead, runs
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.filesystems import filesystem_of, is_object_store, is_unreachable, reason_of
from watersmeet.state.bytes_at_once import bytes_at_once
from watersmeet.state.freed_memory import release_unused
from watersmeet.state.mapped_file import MappedFile, mapped_batches

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_Column: TypeAlias = pa.Array | pa.ChunkedArray
#: Texts, bytes and nested values are decoded by a part of the rows: what they take may not be seen before.
_TRIED = 16


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """What to read of each file.

    ``schema`` has the declared columns with Spark's types for them.  If ``numbered``, rows get a column ``_seq``: the
    file's place and the row's number in it, as bytes in that order.
    """

    schema: pa.Schema
    numbered: bool = False


class RowFile(Protocol):
    """A file whose rows a worker reads."""

    def read(self, wanted: ParquetRows) -> Iterator[pa.Table]:
        """Yield its rows.

        Raises ``ConnectorError`` if it cannot be read as declared, and ``OutageError`` where its store does not answer.
        """


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file: its URI, its place among the files, and its rows' arrival time (None: the rows hold it).

    Folders below ``root`` may hold partition values.
    """

    uri: str
    place: str
    root: str
    arrival: pa.Scalar | None = None

    def read(self, wanted: ParquetRows) -> Iterator[pa.Table]:
        """Yield its rows, see ``RowFile``."""
        path = unquote(self.uri if is_object_store(self.uri) else urlsplit(self.uri).path)
        values: dict[str, pa.Scalar] = {} if self.arrival is None else {TP_TIME: self.arrival}
        values |= {name: pa.scalar(value, pa.string()) for name, value in _partitions(path, self.root).items()}
        first = 0
        try:
            for rows in read_columns(path, wanted.schema, values):
                if wanted.numbered:
                    rows = rows.append_column(SEQUENCE, _places(self.place, first, rows.num_rows))
                first += rows.num_rows
                yield rows
        except FileNotFoundError as error:
            raise _unreadable(path, error) from None


def read_columns(
    path: str, schema: pa.Schema, values: Mapping[str, pa.Scalar], names: Mapping[str, str] | None = None
) -> Iterator[pa.Table]:
    """Yield columns of a file's rows, in the file's order.

    ``values`` has the one value of columns that are not in the file, ``names`` what others are called there, both by
    lower-case name.  Raises as ``RowFile.read`` does, and ``FileNotFoundError`` if the file does not exist.
    """
    is_far = is_object_store(path)
    with _readable(path):
        filesystem, inner = filesystem_of(path)
        with filesystem.open_input_file(inner) as source:
            metadata = pq.read_metadata(source)
            # read through a buffer: otherwise all bytes of a row group are in memory before its first row is
            with pq.ParquetFile(
                source,
                metadata=metadata,
                coerce_int96_timestamp_unit="us",
                buffer_size=bytes_ahead(metadata.num_columns),
                pre_buffer=is_far,
            ) as opened:
                yield from _Columns(opened, path, schema, values, names or {}).read(source, is_far=is_far)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what Arrow says of a file into errors of ``read_columns``."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> ConnectorError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    said = f"{path} cannot be read as Parquet: {reason}"
    if is_unreachable(str(error)):
        known = reason_of(reason)
        return OutageError(said, waits_for=f"{path}: {known}" if known else "")
    return ConnectorError(
        said, hint="put a whole file in its place and run the query again: it goes on where it stopped"
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of an open file, see ``read_columns``."""

    opened: pq.ParquetFile
    path: str
    schema: pa.Schema
    values: Mapping[str, pa.Scalar]
    names: Mapping[str, str]

    def read(self, source: pa.NativeFile, *, is_far: bool) -> Iterator[pa.Table]:
        """Yield all rows; ``source`` is the file once more."""
        found = self._found()
        for run in runs(self.opened.metadata, found.values(), source, is_far=is_far):
            yield from evened(self._tables(run, found), run.rows)

    def _tables(self, run: Run, found: Mapping[str, str]) -> Iterator[pa.Table]:
        """Yield the rows of a run as they are decoded, with all columns."""
        for count, columns in self._zipped(run, found):
            for field in self.schema:
                if field.name not in found:
                    columns[field.name] = _repeated(self.values.get(field.name.lower()), field.type, count)
            yield pa.Table.from_arrays([columns[field.name] for field in self.schema], schema=self.schema)

    def _found(self) -> dict[str, str]:
        """Return the columns that are in the file, with their names there."""
        in_file = _by_name(self.opened.schema_arrow.names, self.path)
        called = {field.name: self.names.get(field.name.lower(), field.name).lower() for field in self.schema}
        return {
            name: in_file[called[name]]
            for name in self.schema.names
            if called[name] in in_file and name.lower() not in self.values
        }

    def _zipped(self, run: Run, found: Mapping[str, str]) -> Iterator[tuple[int, dict[str, _Column]]]:
        """Yield a run's rows, so many with their columns.

        All parts but the last wait in files: a part is read through before the next one begins.
        """
        *stored, last = run.parts
        files = [self._stored(run, part, found) for part in stored]
        first = 0
        for count, columns in self._part(run, last, found):
            for _, rows in files:
                columns |= dict(zip(rows.column_names, rows.slice(first, count).columns, strict=True))
            yield count, columns
            first += count
            for file, _ in files:
                file.release()

    def _stored(self, run: Run, part: Sequence[str], found: Mapping[str, str]) -> tuple[MappedFile, pa.Table]:
        """Return a part's columns in a file.  Raises ``LimitError`` if the disk is full."""
        schema = pa.schema([field for field in self.schema if found.get(field.name) in part])
        batches = (
            pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
            for _, columns in self._part(run, part, found)
        )
        stored = mapped_batches(batches, schema)
        release_unused()
        return stored

    def _part(
        self, run: Run, part: Sequence[str], found: Mapping[str, str]
    ) -> Iterator[tuple[int, dict[str, _Column]]]:
        fields = [field for field in self.schema if found.get(field.name) in part]
        is_sure = all(pt.is_primitive(each.type) or pt.is_decimal(each.type) for each in fields)
        rows = run.rows if is_sure else max(run.rows // _TRIED, 1)
        with _readable(self.path):  # an error of the file is none of the disk to which its columns go
            for batch in self.opened.iter_batches(
                rows, row_groups=list(run.groups), columns=list(part), use_threads=False
            ):
                yield (
                    batch.num_rows,
                    {each.name: _as_declared(batch[found[each.name]], each, self.path) for each in fields},
                )


def evened(parts: Iterable[pa.Table], most_rows: int) -> Iterator[pa.Table]:
    """Yield rows in tables of as many bytes as are taken at once, and of at most so many rows."""
    held: list[pa.Table] = []
    rows = nbytes = 0
    for part in parts:
        size, most = int(part.nbytes), bytes_at_once(part.nbytes, part.num_rows)
        if held and (rows + part.num_rows > most_rows or nbytes + size > most):
            yield _joined(held)
            held, rows, nbytes = [], 0, 0
        if size > most:
            step = max(part.num_rows * most // size, 1)
            yield from (part.slice(start, step) for start in range(0, part.num_rows, step))
            continue
        held.append(part)
        rows, nbytes = rows + part.num_rows, nbytes + size
    if held:
        yield _joined(held)


def _joined(parts: list[pa.Table]) -> pa.Table:
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()


def _repeated(value: pa.Scalar | None, kind: pa.DataType, count: int) -> pa.Array:
    if value is None or not value.is_valid:
        return pa.nulls(count, kind)
    return pa.repeat(value.cast(kind), count)


def _by_name(names: Iterable[str], path: str) -> dict[str, str]:
    """Return the file's columns by lower-case name."""
    found: dict[str, str] = {}
    for name in names:
        if (other := found.setdefault(name.lower(), name)) != name:
            raise ConnectorError(f"{path} has two columns that differ in case only: {other} and {name}")
    return found


def _partitions(path: str, root: str) -> dict[str, str | None]:
    """Return the partition values in a path below the root, by lower-case column name."""
    pairs = (part.split("=", 1) for part in path.removeprefix(root).split("/")[:-1] if "=" in part)
    return {unquote(name).lower(): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def _as_declared(column: pa.Array, field: pa.Field, path: str) -> pa.Array:
    kind, wanted = column.type, field.type
    if kind == wanted:
        return column
    if pa.types.is_dictionary(kind):
        return _as_declared(column.dictionary_decode(), field, path)
    if not widens(kind, wanted, may_lack=True):
        raise ConnectorError(
            f"{path}: column {field.name} is {kind}, but the stream declares {wanted}",
            hint="declare the column as the files have it, and CAST it in the query",
        )
    return column.cast(wanted)


def widens(kind: pa.DataType, wanted: pa.DataType, *, may_lack: bool = False) -> bool:
    """Whether a column of a file may be declared with another type, which holds all its values.

    ``may_lack``: a STRUCT may lack fields that are declared; they are NULL, as columns are that came later.
    """
    if pa.types.is_nested(kind):
        return _parts_widen(kind, wanted, may_lack=may_lack)
    is_whole, is_decimal = pa.types.is_signed_integer(kind), pa.types.is_decimal(kind)
    return bool(
        (is_whole and pa.types.is_signed_integer(wanted) and kind.bit_width < wanted.bit_width)
        or (pa.types.is_float32(kind) and pa.types.is_float64(wanted))
        or (pa.types.is_integer(kind) and kind.bit_width <= 32 and pa.types.is_float64(wanted))
        or ((pa.types.is_large_string(kind) or pa.types.is_string_view(kind)) and pa.types.is_string(wanted))
        or ((pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)) and pa.types.is_binary(wanted))
        or (pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted) and kind.unit in ("s", "ms", "us"))
        or (is_decimal and pa.types.is_decimal(wanted) and _holds(wanted, kind.precision, kind.scale))
    )


def _parts_widen(kind: pa.DataType, wanted: pa.DataType, *, may_lack: bool) -> bool:
    """Whether each part of a nested type may be declared as that of another type."""

    def fits(part: pa.DataType, declared: pa.DataType) -> bool:
        return bool(part == declared) or widens(part, declared, may_lack=may_lack)

    if pa.types.is_list(wanted):
        return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and fits(kind.value_type, wanted.value_type)
    if pa.types.is_map(wanted):
        return pa.types.is_map(kind) and fits(kind.key_type, wanted.key_type) and fits(kind.item_type, wanted.item_type)
    if not (pa.types.is_struct(wanted) and pa.types.is_struct(kind)):
        return False
    declared = {field.name: field.type for field in wanted}
    known = {field.name for field in kind}
    is_whole = len(known) == kind.num_fields and (may_lack or known >= declared.keys())
    return is_whole and all(field.name in declared and fits(field.type, declared[field.name]) for field in kind)


def _holds(wanted: pa.DataType, precision: int, scale: int) -> bool:
    """Whether a decimal has place for all digits of another."""
    return bool(wanted.scale >= scale and wanted.precision - wanted.scale >= precision - scale)


def _places(place: str, first: int, count: int) -> pa.Array:
    """Return the file's place followed by each row's number in eight big-endian bytes, which sort like numbers."""
    head = np.frombuffer(place.encode(), dtype=np.uint8)
    numbers = np.arange(first, first + count, dtype=">u8")
    text = np.empty((count, len(head) + numbers.itemsize), dtype=np.uint8)
    text[:, : len(head)] = head
    text[:, len(head) :] = numbers.view(np.uint8).reshape(count, numbers.itemsize)
    width = text.shape[1]
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(text)]).cast(pa.binary())
