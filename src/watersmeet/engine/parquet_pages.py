"""What a row group of a Parquet file takes in memory while it is read, as far as the file says before.

A reader holds a page of each column, decompressed, and the column's dictionary.  The file's metadata has only the bytes
of all pages of a column together: DuckDB writes them as one page, others as pages of about 1 MB.  So the header of the
first page is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.state.bytes_at_once import bytes_at_once

#: The pages of columns that are read together have about so many bytes, or there is one column.
_PAGES_BYTES = 64 << 20
#: At most so many rows are read at once.
_ROWS = 131_072
#: So many bytes are read ahead of each column, and less of each if there are many.
_MOST_AHEAD, _LEAST_AHEAD, _AHEAD_OF_ALL = 1 << 20, 64 << 10, 16 << 20
#: A column with fewer bytes is counted as one page.
_FEW_BYTES = 256 << 10
#: What a value takes in Arrow, at most, as it is declared, by its type in the file; a text has four bytes beside it.
_WIDTHS = dict.fromkeys(("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"), 8)
_DECIMAL_WIDTH = 16
_TEXT_WIDTH = 4
#: How a header begins, a struct in the compact encoding of Thrift: the kind of page, its bytes decompressed and in the
#: file, perhaps a checksum, and in the header of a dictionary, which is the seventh field, how many values it has.
_NUMBER = rb"\x15([\x80-\xff]*[\x00-\x7f])"
_HEADER = re.compile(
    _NUMBER + _NUMBER + _NUMBER + rb"(?:" + _NUMBER + rb")?(?:[\x3c\x4c]" + _NUMBER + rb")?", re.DOTALL
)
_HEADER_BYTES = 48
_DICTIONARY = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its bytes when decompressed; if it is a dictionary, how many values it has."""

    nbytes: int
    is_dictionary: bool
    values: int


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """The bytes of a column of a row group: those ``held`` while it is read, and all its ``rows`` in Arrow."""

    held: int = 0
    rows: int = 0

    def __add__(self, other: ColumnSize) -> ColumnSize:
        return ColumnSize(self.held + other.held, self.rows + other.rows)


_NOTHING = ColumnSize()


@dataclass(frozen=True, slots=True)
class Run:
    """Row groups that are read one after the other, so many ``rows`` at once.

    Where there are several ``parts``, the columns of each are read through the row group before those of the next.
    """

    groups: tuple[int, ...]
    rows: int
    parts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column, or a part of a nested one, in a row group; ``width`` is that of a value (None: they have none)."""

    chunk: pq.ColumnChunkMetaData
    width: int | None


def bytes_ahead(columns: int) -> int:
    """Return how many bytes to read ahead of each column of a file that has so many."""
    return min(max(_AHEAD_OF_ALL // max(columns, 1), _LEAST_AHEAD), _MOST_AHEAD)


def runs(metadata: pq.FileMetaData, names: Iterable[str], source: pa.NativeFile, *, is_far: bool) -> list[Run]:
    """Return how to read columns of a file: small parts of rows, and of columns where their pages are large.

    Each look into the file (``source``) costs a request where it ``is_far``: there it is only for large row groups, and
    for the first of several that are alike.
    """
    leaves = _leaves(metadata, names)
    widths = [_width(metadata.schema.column(number)) for number in range(metadata.num_columns)]
    ahead = bytes_ahead(metadata.num_columns)
    found: list[Run] = []
    known: tuple[int, int, Run] | None = None  # the bytes and rows of a large row group, and how it is read
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows:
            continue
        chunks = {name: [_Chunk(group.column(leaf), widths[leaf]) for leaf in of] for name, of in leaves.items()}
        sizes = _sizes(chunks, ahead, None if is_far else source)
        nbytes = _held(sizes)
        looks = is_far and nbytes > _PAGES_BYTES
        if looks:
            if known is not None and _is_at_most(nbytes, group.num_rows, *known[:2]):
                _append(found, replace(known[2], groups=(number,)))
                continue
            sizes = _sizes(chunks, ahead, source)
        run = Run((number,), _rows_at_once(sum(size.rows for size in sizes.values()), group.num_rows), parts(sizes))
        if looks:
            known = (nbytes, group.num_rows, run)
        _append(found, run)
    return found


def _is_at_most(nbytes: int, rows: int, known_bytes: int, known_rows: int) -> bool:
    """Whether a row group is hardly larger than a known one, and its rows too."""
    return 4 * nbytes <= 5 * known_bytes and 4 * nbytes * known_rows <= 5 * known_bytes * rows


def parts(sizes: Mapping[str, ColumnSize]) -> tuple[tuple[str, ...], ...]:
    """Return the columns in parts with few bytes of pages; those with the largest pages come first."""
    if _held(sizes) <= _PAGES_BYTES:
        return (tuple(sizes),)
    found: list[list[str]] = []
    nbytes = _PAGES_BYTES
    for name in sorted(sizes, key=lambda name: -sizes[name].held):
        nbytes += sizes[name].held
        if nbytes > _PAGES_BYTES:
            found.append([])
            nbytes = sizes[name].held
        found[-1].append(name)
    return tuple(map(tuple, found))


def page_in(header: bytes) -> Page | None:
    """Return the page whose header begins so, None if that is no header."""
    if (match := _HEADER.match(header)) is None:
        return None
    kind, nbytes, _, _, values = (_decoded(each or b"") for each in match.groups())
    return Page(nbytes, kind == _DICTIONARY, values)


def _decoded(number: bytes) -> int:
    """Return the number of these bytes of seven bits each; it is doubled, for a bit that is its sign."""
    return sum((byte & 127) << 7 * place for place, byte in enumerate(number)) >> 1


def _append(found: list[Run], run: Run) -> None:
    """Append a run, to the one before if the same columns are read together there, of rows of about the same size."""
    last = found[-1] if found else None
    if last is None or len(last.parts) + len(run.parts) > 2 or not last.rows <= 2 * run.rows <= 4 * last.rows:
        found.append(run)
    else:
        found[-1] = Run(last.groups + run.groups, min(last.rows, run.rows), last.parts)


def _leaves(metadata: pq.FileMetaData, names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of the file's columns by the names of those that are wanted: a nested one has several."""
    found: dict[str, list[int]] = {name: [] for name in names}
    for number in range(metadata.num_columns):
        path = metadata.schema.column(number).path
        name = path if path in found else path.split(".")[0]
        if name in found:
            found[name].append(number)
    return found


def _width(column: pq.ColumnSchema) -> int | None:
    return _DECIMAL_WIDTH if column.converted_type == "DECIMAL" else _WIDTHS.get(column.physical_type)


def _held(sizes: Mapping[str, ColumnSize]) -> int:
    return sum(size.held for size in sizes.values())


def _rows_at_once(nbytes: int, rows: int) -> int:
    return max(1, min(_ROWS, bytes_at_once(nbytes, rows) * rows // max(nbytes, 1)))


def _sizes(chunks: Mapping[str, list[_Chunk]], ahead: int, source: pa.NativeFile | None) -> dict[str, ColumnSize]:
    return {name: sum((_size(each, ahead, source) for each in of), _NOTHING) for name, of in chunks.items()}


def _size(sized: _Chunk, ahead: int, source: pa.NativeFile | None) -> ColumnSize:
    """Return the size of a chunk; without ``source``, as if all its values were in one page."""
    chunk, width = sized.chunk, sized.width
    whole, values = chunk.total_uncompressed_size, chunk.num_values
    ahead, rows = min(ahead, chunk.total_compressed_size), max(whole, values * (width or 0))
    is_small = whole <= _FEW_BYTES and (width is not None or not chunk.has_dictionary_page)
    if source is None or is_small:
        return ColumnSize(whole + ahead, rows)
    dictionary, page = _pages(chunk, source)
    held = whole if page is None else page.nbytes
    if dictionary is not None:
        if width is None:
            rows = max(rows, values * (dictionary.nbytes // max(dictionary.values, 1) + _TEXT_WIDTH))
        # it is there as it is in the file, and once more as values; pages after it that do without are about as large
        held = max(held, dictionary.nbytes) + 2 * dictionary.nbytes
    return ColumnSize(min(held, 2 * whole) + ahead, rows)


def _pages(chunk: pq.ColumnChunkMetaData, source: pa.NativeFile) -> tuple[Page | None, Page | None]:
    """Return a chunk's dictionary, if it has one, and its first page that is none, as far as they can be known."""
    page = page_in(source.read_at(_HEADER_BYTES, chunk.data_page_offset))
    if page is not None and page.is_dictionary:  # not all writers tell it from other pages
        return page, None
    offset = chunk.dictionary_page_offset
    dictionary = page_in(source.read_at(_HEADER_BYTES, offset)) if offset else None
    return (dictionary if dictionary is not None and dictionary.is_dictionary else None), page
