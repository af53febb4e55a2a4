"""Large values, kept beside the tables of a working set: rows carry short references in their place.

DuckDB makes 2,048 rows at a time, however large they are, and copies their values from operator to operator.  With
values of 10 MB that is 20 GB.  A column that a kernel only passes on need not be there: a reference says where its
value is, in the rows of the step or in a file of a segment, and is replaced when rows leave the operator, so many at a
time as have few bytes.

References never leave a process.  Each begins with a random number, so no value of a user is one.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.state.mapped_file import MappedFile, mapped_batches

#: Shorter values stay in their rows.
LARGE_BYTES = 64 * 1024
#: Rows that leave an operator have about so many bytes at a time, or there is one.
PIECE_BYTES = 8 << 20
#: A chunk has about so many: Arrow's texts and bytes may have 2 GB in one.
CHUNK_BYTES = 512 << 20


@dataclass(slots=True)
class _Owner:
    """The values of one owner: their numbers, and the files in which they are (none: in memory)."""

    numbers: list[int] = field(default_factory=list)
    files: list[MappedFile] = field(default_factory=list)


class LargeValues:
    """The large values of a working set, each of which belongs to an owner: a segment, or the step."""

    def __init__(self) -> None:
        self._prefix = f"watersmeet-{uuid.uuid4().hex}-"
        self._numbers = itertools.count()
        self._values: dict[int, pa.Array] = {}  # each an array of one value
        self._owners: dict[str, _Owner] = {}

    def keep(self, owner: str, rows: pa.Table, columns: Sequence[str], *, in_file: bool = False) -> pa.Table:
        """Return rows with references in place of the large values in some of their columns.

        ``columns`` hold text or bytes; rows may lack them.  Values are moved to a file if ``in_file``; otherwise the
        rows that came stay in memory until the owner is forgotten.
        """
        for place, name in enumerate(rows.column_names):
            if name in columns:
                rows = rows.set_column(place, rows.schema.field(place), self._kept(owner, rows.column(place), in_file))
        return rows

    def forget(self, owner: str) -> None:
        """Drop the values of an owner, if it has any."""
        if (owned := self._owners.pop(owner, None)) is not None:
            for number in owned.numbers:
                del self._values[number]

    def whole(self, rows: pa.Table) -> pa.Table:
        """Return rows with all their values."""
        (found,) = self._pieces(rows, None)
        return found

    def pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows with all their values, in pieces of at most ``PIECE_BYTES`` of large ones, or of one row."""
        yield from self._pieces(rows, PIECE_BYTES)

    def _pieces(self, rows: pa.Table, most: int | None) -> Iterator[pa.Table]:
        found = self._references(rows) if self._values else {}
        if not found:
            yield rows
            return
        sizes = np.sum([self._sizes(numbers) for numbers in found.values()], axis=0)
        for start, stop in _cuts(sizes, most):
            piece = rows.slice(start, stop - start)
            for place, numbers in found.items():
                column = self._replaced(piece.column(place), numbers[start:stop])
                piece = piece.set_column(place, piece.schema.field(place), column)
                del column
            for owned in self._owners.values():
                for file in owned.files:
                    file.release()
            yield piece
            del piece

    def _kept(self, owner: str, column: pa.ChunkedArray, in_file: bool) -> pa.ChunkedArray:
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        is_large = lengths >= LARGE_BYTES
        if not is_large.any():
            return column
        places = is_large.nonzero()[0].tolist()
        owned = self._owners.setdefault(owner, _Owner())
        values = _each(column, places)
        if in_file:
            schema = pa.schema([pa.field("value", column.type)])
            batches = (pa.RecordBatch.from_arrays([value], schema=schema) for value in values)
            file, table = mapped_batches(batches, schema)
            owned.files.append(file)
            values = iter(table.column("value").chunks)
        numbers = list(itertools.islice(self._numbers, len(places)))
        owned.numbers += numbers
        self._values.update(zip(numbers, values, strict=True))
        references = pa.array([f"{self._prefix}{number}" for number in numbers]).cast(column.type)
        others = column.filter(pa.array(~is_large))
        order = np.empty(len(column), np.int64)
        order[~is_large] = np.arange(len(others))
        order[is_large] = len(others) + np.arange(len(places))
        return pa.chunked_array([*others.chunks, references]).take(pa.array(order))

    def _references(self, rows: pa.Table) -> dict[int, np.ndarray]:
        """Return, for each column with references, the numbers of its values, -1 for values that are in the rows."""
        found = {}
        for place, column in enumerate(rows.columns):
            if not (pt.is_string(column.type) or pt.is_binary(column.type)):
                continue
            is_reference = pc.fill_null(pc.starts_with(column, self._prefix), False).to_numpy()
            if is_reference.any():
                texts = column.filter(pa.array(is_reference)).cast(pa.string())
                numbers = found[place] = np.full(rows.num_rows, -1, np.int64)
                numbers[is_reference] = pc.utf8_slice_codeunits(texts, len(self._prefix)).cast(pa.int64()).to_numpy()
        return found

    def _sizes(self, numbers: np.ndarray) -> np.ndarray:
        return np.array([self._values[number].nbytes if number >= 0 else 0 for number in numbers.tolist()], np.int64)

    def _replaced(self, column: pa.ChunkedArray, numbers: np.ndarray) -> pa.ChunkedArray:
        parts: list[pa.Array] = []
        start = 0
        for place in (*(numbers >= 0).nonzero()[0].tolist(), len(numbers)):
            parts += column.slice(start, place - start).chunks
            parts += [self._values[int(numbers[place])]] if place < len(numbers) else []
            start = place + 1
        sizes = np.array([part.nbytes for part in parts], np.int64)
        chunks = [pa.concat_arrays(parts[start:stop]) for start, stop in _cuts(sizes, CHUNK_BYTES) if stop > start]
        return pa.chunked_array(chunks, type=column.type)


def _each(column: pa.ChunkedArray, places: Iterable[int]) -> Iterator[pa.Array]:
    """Yield the values at some places, each as an array that points into the column."""
    for place in places:
        (value,) = (chunk for chunk in column.slice(place, 1).chunks if len(chunk))
        yield value


def _cuts(sizes: np.ndarray, most: int | None) -> Iterator[tuple[int, int]]:
    """Yield ranges of places, each as long as its bytes are at most so many, or of one place."""
    start = held = 0
    for place, size in enumerate(sizes.tolist()):
        if most is not None and place > start and held + size > most:
            yield start, place
            start, held = place, 0
        held += size
    yield start, len(sizes)
