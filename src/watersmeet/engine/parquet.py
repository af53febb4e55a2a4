"""Parquet files as a stream's rows, read in the worker.

Spark lists the files and assigns them to batches; a task gets their names and reads them itself, so rows do not pass
through the JVM one by one.  The rows are those that Spark would read: columns by name, ignoring case; NULL for a column
that a file lacks; partition values from ``NAME=VALUE`` in a file's path; numbers widened to the declared type.  Any
other difference of types is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.columns import SEQUENCE, TP_TIME
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.filesystems import filesystem_of, is_object_store, is_unreachable, reason_of

#: So many rows are read at once, or rows of so many bytes.
_ROWS, _BYTES = 131_072, 32 << 20
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """What to read of each file.

    ``schema`` has the declared columns with Spark's types for them.  Folders below ``root`` may hold partition values.
    If ``numbered``, rows get a column ``_seq``: the file's place and the row's number in it, as bytes in that order.
    """

    schema: pa.Schema
    root: str
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file: its URI, its place among the files, and its rows' arrival time (None: the rows hold it)."""

    uri: str
    place: str
    arrival: pa.Scalar | None = None


def read_parquet(file: ParquetFile, wanted: ParquetRows) -> Iterator[pa.Table]:
    """Yield the rows of a file.

    Raises ``ConnectorError`` if it cannot be read as declared, and ``OutageError`` where its store does not answer.
    """
    path = unquote(file.uri if is_object_store(file.uri) else urlsplit(file.uri).path)
    try:
        filesystem, inner = filesystem_of(path)
        with pq.ParquetFile(inner, filesystem=filesystem, coerce_int96_timestamp_unit="us") as opened:
            yield from _read(opened, path, file, wanted)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        said = f"{path} cannot be read as Parquet: {reason}"
        if is_unreachable(str(error)):
            known = reason_of(reason)
            raise OutageError(said, waits_for=f"{path}: {known}" if known else "") from None
        raise ConnectorError(
            said, hint="put a whole file in its place and run the query again: it goes on where it stopped"
        ) from None


def _read(opened: pq.ParquetFile, path: str, file: ParquetFile, wanted: ParquetRows) -> Iterator[pa.Table]:
    in_file = _by_name(opened.schema_arrow.names, path)
    in_path = _partitions(path.removeprefix(wanted.root))
    found = {
        field.name: in_file[field.name.lower()]
        for field in wanted.schema
        if field.name.lower() in in_file and field.name.lower() not in in_path
    }
    first = 0
    for batch in opened.iter_batches(
        _rows_at_once(opened.metadata, found.values()), columns=list(found.values()), use_threads=False
    ):
        columns = []
        for field in wanted.schema:
            if field.name in found:
                columns.append(_as_declared(batch[found[field.name]], field, path))
            elif field.name == TP_TIME and file.arrival is not None:
                columns.append(pa.repeat(file.arrival.cast(field.type), batch.num_rows))
            else:
                value = pa.scalar(in_path.get(field.name.lower()), pa.string()).cast(field.type)
                columns.append(pa.repeat(value, batch.num_rows))
        rows = pa.Table.from_arrays(columns, schema=wanted.schema)
        if wanted.numbered:
            rows = rows.append_column(SEQUENCE, _places(file.place, first, batch.num_rows))
        first += batch.num_rows
        yield rows


def _rows_at_once(metadata: pq.FileMetaData, names: Iterable[str]) -> int:
    """Return how many rows to read at once, fewer if these columns are large as they are encoded."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    read = set(names)
    nbytes = sum(each.total_uncompressed_size for each in columns if each.path_in_schema.split(".")[0] in read)
    return max(1, min(_ROWS, _BYTES * int(metadata.num_rows) // max(int(nbytes), 1)))


def _by_name(names: Iterable[str], path: str) -> dict[str, str]:
    """Return the file's columns by lower-case name."""
    found: dict[str, str] = {}
    for name in names:
        if (other := found.setdefault(name.lower(), name)) != name:
            raise ConnectorError(f"{path} has two columns that differ in case only: {other} and {name}")
    return found


def _partitions(path: str) -> dict[str, str | None]:
    """Return the partition values in a path below the root, by lower-case column name."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return {unquote(name).lower(): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def _as_declared(column: pa.Array, field: pa.Field, path: str) -> pa.Array:
    kind, wanted = column.type, field.type
    if kind == wanted:
        return column
    if pa.types.is_dictionary(kind):
        return _as_declared(column.dictionary_decode(), field, path)
    widens = (
        (pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(wanted) and kind.bit_width < wanted.bit_width)
        or (pa.types.is_float32(kind) and pa.types.is_float64(wanted))
        or (pa.types.is_integer(kind) and kind.bit_width <= 32 and pa.types.is_float64(wanted))
        or (pa.types.is_large_string(kind) and pa.types.is_string(wanted))
        or (pa.types.is_large_binary(kind) and pa.types.is_binary(wanted))
        or (pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted) and kind.unit in ("s", "ms", "us"))
    )
    if not widens:
        raise ConnectorError(
            f"{path}: column {field.name} is {kind}, but the stream declares {wanted}",
            hint="declare the column as the files have it, and CAST it in the query",
        )
    return column.cast(wanted)


def _places(place: str, first: int, count: int) -> pa.Array:
    """Return the file's place followed by each row's number in eight big-endian bytes, which sort like numbers."""
    head = np.frombuffer(place.encode(), dtype=np.uint8)
    numbers = np.arange(first, first + count, dtype=">u8")
    text = np.empty((count, len(head) + numbers.itemsize), dtype=np.uint8)
    text[:, : len(head)] = head
    text[:, len(head) :] = numbers.view(np.uint8).reshape(count, numbers.itemsize)
    width = text.shape[1]
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(text)]).cast(pa.binary())
